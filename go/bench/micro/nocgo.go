//go:build !cgo

package main

var cgoPrograms []program
