/* The Fibonacci numbers by naive recursion: almost nothing but calls, the worst case of a probe at each entry. */
#include "kernel.h"

static unsigned index_of_number;

void prepare(void)
{
	index_of_number = 35 + (unsigned)kernel_scale;
}

static uint64_t fib(unsigned n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

uint64_t kernel(void)
{
	return mix(0, fib(index_of_number));
}
