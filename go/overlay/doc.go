// Package overlay makes a stock Go toolchain build programs with Heddle's scheduler, without
// changing the toolchain: it applies a few small edits to the sources of the standard library
// (edits.go), adds files of its own (_runtime) and describes both to cmd/go's -overlay.
package overlay
