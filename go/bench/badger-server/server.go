package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/heddle-sched/heddle/go/bench/internal/kv"
)

// receiveBuffer is room for bursts of datagrams, in bytes; the kernel grants at most
// net.core.rmem_max.
const receiveBuffer = 8 << 20

// server is the sockets and the store that they share.
type server struct {
	store *kv.Store
	udp   *net.UDPConn // nil: does not listen
	http  net.Listener // nil: does not listen
	datagrams
}

func listen(opts options) (*server, error) {
	s := new(server)
	if opts.udp != "" {
		conn, err := net.ListenPacket("udp", opts.udp)
		if err != nil {
			return nil, fmt.Errorf("cannot listen for datagrams: %w", err)
		}
		s.udp = conn.(*net.UDPConn)
		if err := s.udp.SetReadBuffer(receiveBuffer); err != nil {
			return nil, errors.Join(err, s.udp.Close())
		}
	}
	if opts.http != "" {
		listener, err := net.Listen("tcp", opts.http)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot listen for HTTP: %w", err), s.close())
		}
		s.http = listener
	}
	return s, nil
}

// close closes the sockets of a server that does not serve.
func (s *server) close() (err error) {
	if s.udp != nil {
		err = s.udp.Close()
	}
	if s.http != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

func (s *server) readyLine(keys uint64) string {
	var line strings.Builder
	line.WriteString("ready")
	if s.udp != nil {
		fmt.Fprintf(&line, " udp=%v", s.udp.LocalAddr())
	}
	if s.http != nil {
		fmt.Fprintf(&line, " http=%v", s.http.Addr())
	}
	fmt.Fprintf(&line, " keys=%d", keys)
	return line.String()
}

// serve answers until ctx is done and everything received by then is answered, or until a socket
// fails.
func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	if s.udp != nil {
		parts.Go(func() { cancel(s.serveDatagrams(ctx)) })
	}
	if s.http != nil {
		parts.Go(func() { cancel(s.serveHTTP(ctx)) })
	}
	parts.Wait()
	s.datagrams.report(os.Stderr)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return errors.Join(err, s.store.Close())
	}
	return s.store.Close()
}
