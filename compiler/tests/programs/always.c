/*
 * Linked into a program with probes, makes every probe call the hook: no budget is ever granted. The hook destroys what
 * it may, r11 and the flags, and counts. At the end the count goes to stderr, so that a test sees that probes were
 * taken.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern void (*__heddle_probe_hook)(void) __attribute__((visibility("hidden"), weak));

uint64_t probes_taken __attribute__((visibility("hidden")));

void take_probe(void);

__asm__(".text\n"
        ".p2align 4\n"
        "take_probe:\n"
        "    movl $0, %fs:(%r11)\n"
        "    movq $-1, %r11\n"
        "    addq $1, probes_taken(%rip)\n"
        "    stc\n"
        "    ret\n");

static void print_count(void)
{
	fprintf(stderr, "probes taken: %llu\n", (unsigned long long)probes_taken);
}

/* Before the constructors of the program itself. */
__attribute__((constructor(101))) static void hook(void)
{
	if (&__heddle_probe_hook == NULL)
		return;
	__heddle_probe_hook = take_probe;
	atexit(print_count);
}
