//go:build heddle

// Nothing: the compiler lets a package declare functions without a body, such
// as those of link_heddle.go, if there is a file like this one.
