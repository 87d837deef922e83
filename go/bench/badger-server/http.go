package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

const (
	headerPatience = 10 * time.Second // for a client to send its request header
	endPatience    = 5 * time.Second  // for requests to end at shutdown
)

// serveHTTP answers until ctx is done, then waits for the last answer.
func (s *server) serveHTTP(ctx context.Context) error {
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: headerPatience}
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		patience, cancel := context.WithTimeout(context.Background(), endPatience)
		defer cancel()
		ended <- server.Shutdown(patience)
	})
	err := server.Serve(s.http)
	if stop() {
		return fmt.Errorf("cannot serve HTTP: %w", err)
	}
	return <-ended
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "pong") })
	mux.HandleFunc("GET /get/{id}", s.get)
	mux.HandleFunc("GET /scan/{id}", s.scan)
	return mux
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	found, err := s.store.Get(key)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case found.Keys == 0:
		http.Error(w, fmt.Sprintf("%s does not exist", key), http.StatusNotFound)
	default:
		fmt.Fprintf(w, "bytes=%d digest=%08x\n", found.Bytes, found.Digest)
	}
}

func (s *server) scan(w http.ResponseWriter, r *http.Request) {
	key, keyErr := keyOf(r)
	count, countErr := countOf(r)
	if err := errors.Join(keyErr, countErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	found, err := s.store.Scan(key, count)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "keys=%d bytes=%d digest=%08x\n", found.Keys, found.Bytes, found.Digest)
}

func keyOf(r *http.Request) ([]byte, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a key id, a number from 0", r.PathValue("id"))
	}
	return wire.AppendIDKey(make([]byte, 0, wire.IDKeyLen), id), nil
}

func countOf(r *http.Request) (uint32, error) {
	text := r.URL.Query().Get("count")
	count, err := strconv.ParseUint(text, 10, 32)
	if err != nil || count > maxRange {
		return 0, fmt.Errorf("count=%q is not a number from 0 to %d", text, maxRange)
	}
	return uint32(count), nil
}
