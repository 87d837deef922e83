/* Not a kernel but a loop that looks at the clock: what gaps the machine itself makes, by interrupts and by what runs
 * below it. Linked with recorder.c. */
#include "kernel.h"

#define LOOKS 16000
#define APART 4096

/* Of recorder.c. */
void look_at_clock(void);

void prepare(void)
{
}

uint64_t kernel(void)
{
	for (int i = 0; i < LOOKS; i++) {
		uint64_t begin = __builtin_ia32_rdtsc();
		while (__builtin_ia32_rdtsc() - begin < APART)
			;
		look_at_clock();
	}
	return kernel_scale;
}
