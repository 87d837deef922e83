// Command knobs exits at once.
package main

func main() {}
