package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
)

const (
	comBinlogDump  = 0x12
	heartbeatEvent = 27
)

// recorder stands between readers and the server. It passes everything on; of each
// log dump it records the packets that the server sends, and gives later readers
// the recording instead. So readers get the same bytes, and wait neither for the
// server to read its log nor for it to leave a core free.
type recorder struct {
	target string

	mu         sync.Mutex
	recordings map[string][]byte // by file and offset; raw packets
}

// serve runs a recorder until its standard input ends.
func serve(target string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Println(ln.Addr())
	r := &recorder{target: target, recordings: map[string][]byte{}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed below
			}
			go r.connection(c)
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// recorderProcess is a recorder that runs as a process of its own.
type recorderProcess struct {
	addr string
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Reader
}

func startRecorder(ctx context.Context, target string) (*recorderProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &recorderProcess{cmd: exec.CommandContext(ctx, self, "-serve", target)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if p.addr, err = p.line(); err != nil {
		return nil, errors.Join(fmt.Errorf("start recorder: %w", err), p.stop())
	}
	return p, nil
}

// line reads what the recorder says next: its address, then the name of each
// recording that is complete.
func (p *recorderProcess) line() (string, error) {
	s, err := p.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

func (p *recorderProcess) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// record reads the log behind a position until the recorder has all of it.
func (p *recorderProcess) record(ctx context.Context, src *mysql.Source, from change.Position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := src.Open(ctx, from, only(""))
	if err != nil {
		return err
	}
	defer st.Close()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		_, err := p.line()
		done <- err
	}()
	for err == nil {
		_, err = st.Next(ctx)
	}
	if ctx.Err() != nil {
		return <-done
	}
	return err
}

// connection passes one connection's packets on. Its errors end it: the reader
// notices.
func (r *recorder) connection(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		fmt.Fprintln(os.Stderr, "decode: recorder:", err)
		return
	}
	defer server.Close()
	dumps := make(chan string, 1) // the answer to the next packet is to be recorded under this name
	go func() {
		defer client.Close()
		defer server.Close()
		r.answers(client, server, dumps)
	}()
	in := bufio.NewReaderSize(client, 64<<10)
	for {
		p, err := readPacket(in, nil)
		if err != nil {
			return
		}
		if p[3] == 0 && len(p) > 14 && p[4] == comBinlogDump {
			name := fmt.Sprintf("%s:%d", p[15:], binary.LittleEndian.Uint32(p[5:]))
			r.mu.Lock()
			recording, known := r.recordings[name]
			r.mu.Unlock()
			if known {
				if _, err := client.Write(recording); err != nil {
					return // the reader has what it wanted
				}
				continue
			}
			dumps <- name
		}
		if _, err := server.Write(p); err != nil {
			return
		}
	}
}

// answers passes the server's packets on. Those of a dump, up to the first
// heartbeat behind the end of the log, make a recording.
func (r *recorder) answers(client, server net.Conn, dumps <-chan string) {
	in, out := bufio.NewReaderSize(server, 1<<20), bufio.NewWriterSize(client, 64<<10)
	var name string
	var recording, p []byte
	for {
		var err error
		if p, err = readPacket(in, p[:0]); err != nil {
			return
		}
		select {
		case name = <-dumps:
		default:
		}
		switch {
		case name == "":
		case len(p) > 9 && p[9] == heartbeatEvent:
			r.mu.Lock()
			r.recordings[name] = recording
			r.mu.Unlock()
			fmt.Println(name)
			name, recording = "", nil
		default:
			recording = append(recording, p...)
		}
		if _, err := out.Write(p); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// readPacket reads a packet with its header, appended to buf. What is longer than
// a packet comes as several.
func readPacket(in *bufio.Reader, buf []byte) ([]byte, error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	n := 4 + int(head[0]) + int(head[1])<<8 + int(head[2])<<16
	if cap(buf) < n {
		buf = make([]byte, n, 2*n)
	}
	buf = buf[:n]
	_, err = io.ReadFull(in, buf)
	return buf, err
}
