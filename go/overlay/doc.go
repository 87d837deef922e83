// Package overlay makes a stock Go toolchain build programs with Heddle's
// scheduler, without changing the toolchain: it takes the sources of its
// standard library, makes a few small edits (edits.go), adds files of its own
// (_runtime) and describes both to cmd/go's -overlay.
package overlay
