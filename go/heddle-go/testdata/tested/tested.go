// Package tested has a test that tells by what it was built.
package tested
