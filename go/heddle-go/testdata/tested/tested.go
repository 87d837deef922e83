// Package tested has a test that reports how it was built.
package tested
