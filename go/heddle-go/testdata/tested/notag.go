//go:build !heddle

package tested

const hasTag = false
