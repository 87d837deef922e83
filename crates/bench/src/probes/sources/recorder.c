/* The time between two looks at the clock in a kernel with probes.
 *
 * Usage: KERNEL ROUNDS. Linked with a kernel of compiler/kernels instead of its main.c. The hook below notes how long
 * ago the last look was, and grants as Heddle's does (crates/runtime/src/probe.rs) in a task whose quantum lasts. The
 * ends of a round count as looks, so that a kernel that never looks shows as one long gap.
 *
 * Prints {"ticks": 1, "ns": 1, "lost": 0, "lost_ticks": 0, "buckets": [[highest, count], ...]}, times but `ns` in ticks
 * of the time stamp counter. `lost` counts long gaps that are not the kernel's: the system ran another thread, or an
 * interrupt. */
#include "program.h"

#include "kernel.h"
#include <sys/resource.h>

/* As in crates/runtime/src/probe.rs; a unit test compares them. */
#define PERIOD_SHIFT 12
#define PERIOD (1 << PERIOD_SHIFT)
#define FIRST 8000
#define LEAST 500
#define MOST 128000

/* Above this, a gap may have another reason than the kernel's code. */
#define LONG (2 * PERIOD)
/* No interrupt lasts so long. */
#define LONGEST_INTERRUPT (1 << 18)

/* An object's state in a thread: its first word is the compiler's, the others belong to the hook. */
struct state {
	uint32_t budget;
	uint32_t refill;
	uint64_t granted_at;
};

extern void (*__heddle_probe_hook)(void) __attribute__((visibility("hidden"), weak));

volatile size_t kernel_scale = 1;

static struct histogram gaps;
static uint64_t lost, lost_ticks;
static long switches;
static int records;
static uint64_t last;

static uint64_t ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/* Whether the system has taken the CPU from this thread since the last call. */
static int lost_cpu(void)
{
	struct rusage usage;
	sure(getrusage(RUSAGE_THREAD, &usage), "getrusage");
	int is_new = usage.ru_nivcsw != switches;
	switches = usage.ru_nivcsw;
	return is_new;
}

/* A return from an interrupt clears segment registers that are null but not zero, and nothing else changes ES. */
static void expect_interrupt(void)
{
	__asm__ volatile("movl %0, %%es" : : "r"(3));
}

static int was_interrupted(void)
{
	unsigned es;
	__asm__ volatile("movl %%es, %0" : "=r"(es));
	return (es & 0xffff) == 0;
}

static void record_gap(uint64_t gap)
{
	int interrupted = gap < LONGEST_INTERRUPT && was_interrupted();
	if (gap > LONG && (lost_cpu() || interrupted)) {
		lost++;
		lost_ticks += gap;
	} else {
		record(&gaps, gap);
	}
}

/* Adapts the refill to what was used up since the last grant. */
static uint32_t adapted(uint32_t refill, uint64_t taken)
{
	if (refill == 0)
		return FIRST;
	if (taken > PERIOD + PERIOD / 2) {
		refill >>= taken > 4 * PERIOD ? 3 : 1;
		return refill < LEAST ? LEAST : refill;
	}
	if (taken < PERIOD * 3 / 4) {
		refill += refill >> 2;
		return refill > MOST ? MOST : refill;
	}
	return refill;
}

/* Called by the stub with the distance of the state from FS, whose first word is FS itself. */
__attribute__((used)) static void look(uint64_t distance)
{
	uint64_t now = ticks();
	char *thread;
	__asm__("movq %%fs:0, %0" : "=r"(thread));
	struct state *state = (struct state *)(thread + distance);
	if (records)
		record_gap(now - last);
	state->refill = adapted(state->refill, now - state->granted_at);
	state->budget = state->refill;
	/* The time of this function is not the kernel's. */
	expect_interrupt();
	state->granted_at = last = ticks();
}

/* For clock.c, which has no probes. */
void look_at_clock(void)
{
	uint64_t now = ticks();
	if (records)
		record_gap(now - last);
	expect_interrupt();
	last = ticks();
}

void take_probe(void);

/* A probe preserves all registers but r11 and the flags. This file is compiled for the oldest x86-64, whose code leaves
 * the upper halves of vectors alone. */
__asm__(".text\n"
        ".p2align 4\n"
        "take_probe:\n"
        "    pushq %rax\n"
        "    pushq %rcx\n"
        "    pushq %rdx\n"
        "    pushq %rsi\n"
        "    pushq %rdi\n"
        "    pushq %r8\n"
        "    pushq %r9\n"
        "    pushq %r10\n"
        "    subq $264, %rsp\n"
        "    movups %xmm0, (%rsp)\n"
        "    movups %xmm1, 16(%rsp)\n"
        "    movups %xmm2, 32(%rsp)\n"
        "    movups %xmm3, 48(%rsp)\n"
        "    movups %xmm4, 64(%rsp)\n"
        "    movups %xmm5, 80(%rsp)\n"
        "    movups %xmm6, 96(%rsp)\n"
        "    movups %xmm7, 112(%rsp)\n"
        "    movups %xmm8, 128(%rsp)\n"
        "    movups %xmm9, 144(%rsp)\n"
        "    movups %xmm10, 160(%rsp)\n"
        "    movups %xmm11, 176(%rsp)\n"
        "    movups %xmm12, 192(%rsp)\n"
        "    movups %xmm13, 208(%rsp)\n"
        "    movups %xmm14, 224(%rsp)\n"
        "    movups %xmm15, 240(%rsp)\n"
        "    movq %r11, %rdi\n"
        "    call look\n"
        "    movups (%rsp), %xmm0\n"
        "    movups 16(%rsp), %xmm1\n"
        "    movups 32(%rsp), %xmm2\n"
        "    movups 48(%rsp), %xmm3\n"
        "    movups 64(%rsp), %xmm4\n"
        "    movups 80(%rsp), %xmm5\n"
        "    movups 96(%rsp), %xmm6\n"
        "    movups 112(%rsp), %xmm7\n"
        "    movups 128(%rsp), %xmm8\n"
        "    movups 144(%rsp), %xmm9\n"
        "    movups 160(%rsp), %xmm10\n"
        "    movups 176(%rsp), %xmm11\n"
        "    movups 192(%rsp), %xmm12\n"
        "    movups 208(%rsp), %xmm13\n"
        "    movups 224(%rsp), %xmm14\n"
        "    movups 240(%rsp), %xmm15\n"
        "    addq $264, %rsp\n"
        "    popq %r10\n"
        "    popq %r9\n"
        "    popq %r8\n"
        "    popq %rdi\n"
        "    popq %rsi\n"
        "    popq %rdx\n"
        "    popq %rcx\n"
        "    popq %rax\n"
        "    ret\n");

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
		return 2;
	}
	long rounds = number(argv[1], 1, "ROUNDS");
	/* Without probes there is no hook to set. */
	if (&__heddle_probe_hook != NULL)
		__heddle_probe_hook = take_probe;
	prepare();
	/* The refill adapts here. */
	uint64_t expected = kernel();
	uint64_t begin_ns = now_ns(), begin = ticks();
	lost_cpu();
	for (long round = 0; round < rounds; round++) {
		expect_interrupt();
		last = ticks();
		records = 1;
		uint64_t result = kernel();
		records = 0;
		record_gap(ticks() - last);
		if (result != expected) {
			fprintf(stderr, "the checksum changed from %016lx to %016lx\n", expected, result);
			return 1;
		}
	}
	uint64_t all = ticks() - begin, ns = now_ns() - begin_ns;
	printf("{\"ticks\": %lu, \"ns\": %lu, ", all, ns);
	printf("\"lost\": %lu, \"lost_ticks\": %lu, \"buckets\": ", lost, lost_ticks);
	print_buckets(&gaps);
	printf("}\n");
	return 0;
}
