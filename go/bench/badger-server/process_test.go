package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

// asServer in the environment makes this test binary the server.
const asServer = "BADGER_SERVER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	return cmd
}

// ended runs the server until it exits.
func ended(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	cmd := command(t, os.Args[0], args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestWrongFlagsExitWith2(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing to listen on":            {"-in-memory"},
		"give one of -dir and -in-":       {"-udp", "127.0.0.1:0"},
		"give one of -dir and -in-memor":  {"-udp", "127.0.0.1:0", "-dir", "x", "-in-memory"},
		"-keys 0 is not from 1":           {"-udp", "127.0.0.1:0", "-in-memory", "-keys", "0"},
		"-value 0 is not from 1":          {"-udp", "127.0.0.1:0", "-in-memory", "-value", "0"},
		"-value 1048577 is not":           {"-udp", "127.0.0.1:0", "-in-memory", "-value", "1048577"},
		"-udp \"here\" is not host:port":  {"-udp", "here", "-in-memory"},
		"-http \"1.2.3.4:x\" is not host": {"-http", "1.2.3.4:x", "-in-memory"},
		"unexpected argument \"more\"":    {"-udp", "127.0.0.1:0", "-in-memory", "more"},
		"not defined: -nope":              {"-nope"},
	} {
		status, out, errs := ended(t, args...)
		if status != misuse || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %q, %q; want %q", args, status, out, errs, want)
		}
	}
}

func TestHelp(t *testing.T) {
	status, out, errs := ended(t, "--help")
	if status != 0 || errs != "" {
		t.Errorf("status %d, %q", status, errs)
	}
	for _, want := range []string{"-udp ADDR", "-in-memory", "Examples:", "heddle kv load"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
}

func TestTakenPortExitsWith1(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	status, _, errs := ended(t, "-udp", taken.LocalAddr().String(), "-in-memory", "-keys", "9")
	if status != failed || !strings.Contains(errs, "cannot listen for datagrams") {
		t.Errorf("status %d, %q", status, errs)
	}
}

var readyLine = regexp.MustCompile(`^ready udp=(127\.0\.0\.1:\d+) http=127\.0\.0\.1:\d+ keys=2000\n$`)

// ready reads the line that a server prints when it is ready, and returns its UDP address.
func ready(t *testing.T, out *bufio.Reader) string {
	t.Helper()
	line, err := out.ReadString('\n')
	parts := readyLine.FindStringSubmatch(line)
	if err != nil || parts == nil {
		t.Fatalf("%q (%v)", line, err)
	}
	return parts[1]
}

func serverArgs(dir string) []string {
	return []string{"-udp", "127.0.0.1:0", "-http", "127.0.0.1:0", "-dir", dir, "-keys", "2000"}
}

func TestServesUntilASignalAndStartsAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := command(t, os.Args[0], serverArgs(dir)...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		out := bufio.NewReader(stdout)
		conn := dial(t, udpAddr(t, ready(t, out)))
		if got := ask(t, conn, wire.Request{Op: wire.Get, KeyID: 1999}); got.Status != wire.OK {
			t.Errorf("%+v", got)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil || len(rest) > 0 {
			t.Errorf("%v: it ended with %v, after %q", signal, err, rest)
		}
		guard.Stop()
	}
	// The directory keeps its dataset: another size is an error that names both.
	args := append(serverArgs(dir), "-value", "50")
	status, out, errs := ended(t, args...)
	want := "holds 2000 keys of 100 bytes, not 2000 keys of 50 bytes"
	if status != failed || out != "" || !strings.Contains(errs, want) {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

func udpAddr(t *testing.T, addr string) net.Addr {
	t.Helper()
	parsed, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// The server is the child of a shell that is killed; its exit is seen as the end of the pipe,
// whose last writer it is.
func TestEndsWithItsParent(t *testing.T) {
	args := []string{"-c", `"$0" "$@" & read -r nothing`, os.Args[0]}
	args = append(args, serverArgs(filepath.Join(t.TempDir(), "db"))...)
	shell := command(t, "/bin/sh", args...)
	stdout, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	shell.Stdout = output
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(output.Close(), stdout.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	ready(t, out)
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("the server stays, or prints %q (%v)", rest, err)
	}
	_ = shell.Wait()
}
