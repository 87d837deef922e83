//go:build heddle

package main

const tag = "with tag heddle"
