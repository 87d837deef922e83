//go:build !heddle

package main

const tag = "without tag heddle"
