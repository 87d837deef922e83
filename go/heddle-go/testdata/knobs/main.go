// Command knobs ends as soon as it has begun.
package main

func main() {}
