/*
 * What a thread must find as it left it when it was preempted at a probe: registers of all kinds and their control
 * words, the stack, errno, thread-local variables, and the state of the C library.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "jobs.h"

#define NOINLINE __attribute__((noinline))
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

typedef double double4 __attribute__((vector_size(32)));
typedef int32_t int8 __attribute__((vector_size(32)));

/* A loop of which no compiler knows the count. */
NOINLINE static uint64_t collatz(uint64_t n)
{
	uint64_t steps = 0;

	for (; n > 1; steps++)
		n = n % 2 == 0 ? n / 2 : 3 * n + 1;
	return steps;
}

/* Some thousand cycles. */
NOINLINE static uint64_t compute(uint64_t seed)
{
	uint64_t hash = seed;

	for (uint64_t i = 1; i < 20; i++)
		hash = mix(hash, collatz(seed * 20 + i));
	return hash;
}

/* More values than the processor has registers. */
NOINLINE static uint64_t registers(uint64_t seed)
{
	uint64_t a = seed, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7, i = 8, j = 9, k = 10, l = 11;

	while (l < 30000) {
		a += b * 3;
		b ^= c >> 1;
		c = mix(c, d);
		d += e;
		e = e * 5 + 1;
		f ^= g << 3;
		g += h | 1;
		h = h * 7 ^ a;
		i += f & 0xff;
		j ^= i;
		k = mix(k, j);
		l += 1 + (k & 3);
	}
	return mix(mix(mix(a ^ b, c ^ d), mix(e ^ f, g ^ h)), mix(i ^ j, k ^ l));
}

NOINLINE static uint64_t doubles(uint64_t seed)
{
	double a = (double)seed, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;

	for (size_t i = 0; i < 20000; i++) {
		a = a * 0.5 + b;
		b = b * 0.25 + c;
		c = c * 0.125 + d;
		d = d * 0.5 - e;
		e = e * 0.75 + f;
		f = f * 0.5 + g;
		g = g * 0.25 + h;
		h = h * 0.5 + sqrt(fabs(a)) + (double)(i % 13);
	}
	return mix_double(mix_double(mix_double(mix_double(0, a + b), c + d), e + f), g + h);
}

NOINLINE static uint64_t x87(uint64_t seed)
{
	long double a = (long double)seed, b = 2, c = 3, d = 4, e = 5;

	for (size_t i = 0; i < 10000; i++) {
		a = a * 0.5L + (long double)(i % 7);
		b = b * 0.25L + a / 3;
		c = fabsl(c - b) * 0.5L + 1;
		d = sqrtl(d * d * 0.25L + c);
		e = e * 0.75L - d;
	}
	/* The digits that a double lacks count too. */
	return mix_double(mix_double(0, (double)e), (double)((e - (double)e) * 0x1p60L + (b - (double)b) * 0x1p60L));
}

/* The upper halves of the vector registers are live, and a call that the loop makes does not save them. */
__attribute__((target("avx2"))) NOINLINE static uint64_t wide_vectors(uint64_t seed)
{
	double4 a = {1, 2, 3, (double)seed}, b = {4, 3, 2, 1}, c = {0.5, 0.25, 0.75, 1};
	int8 numbers = {1, 2, 3, 4, 5, 6, 7, (int32_t)seed}, mask = {9, 8, 7, 6, 5, 4, 3, 2};
	uint64_t hash = 0;

	for (size_t i = 0; i < 20000; i++) {
		a = a * c + b;
		b = b * 0.5 - a * 0.125;
		numbers = (numbers ^ mask) * 3 + (int32_t)i;
		mask ^= numbers >> 5;
	}
	for (size_t i = 0; i < 4; i++)
		hash = mix_double(mix_double(hash, a[i]), b[i]);
	for (size_t i = 0; i < 8; i++)
		hash = mix(hash, (uint64_t)(numbers[i] ^ mask[i]));
	return hash;
}

static uint64_t vectors(uint64_t seed)
{
	return __builtin_cpu_supports("avx2") ? wide_vectors(seed) : doubles(seed + 1);
}

/* Each thread rounds in its own way, by both units. */
static uint64_t rounding(uint64_t seed)
{
	static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
	int mode = modes[seed % COUNT(modes)];
	uint64_t hash = 0;

	fesetround(mode);
	for (int i = 1; i < 4000; i++) {
		volatile double x = i, y = 3;
		volatile long double long_x = i, long_y = 7;
		volatile double quotient = x / y;
		volatile long double long_quotient = long_x / long_y;

		hash = mix_double(hash, quotient);
		hash = mix_double(hash, (double)((long_quotient - (double)i / 7) * 0x1p60L));
	}
	hash = mix(hash, (uint64_t)(fegetround() == mode));
	fesetround(FE_TONEAREST);
	return hash;
}

static int compare(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	/* Long enough to be preempted in. */
	return collatz(a % 50 + 1) == 1000 ? 0 : (a > b) - (a < b);
}

/* The C library, which has no probes, between frames that do. */
static uint64_t sorted(uint64_t seed)
{
	uint32_t numbers[800];
	uint64_t hash = 0;

	for (size_t i = 0; i < COUNT(numbers); i++)
		numbers[i] = (uint32_t)next_random(&seed);
	qsort(numbers, COUNT(numbers), sizeof(*numbers), compare);
	for (size_t i = 0; i < COUNT(numbers); i++) {
		const uint32_t *found = bsearch(&numbers[i], numbers, COUNT(numbers), sizeof(*numbers), compare);

		hash = mix(hash, found == NULL ? 0 : *found);
	}
	return hash;
}

NOINLINE static uint64_t descend(uint64_t left, uint64_t seed)
{
	return left == 0 ? compute(seed) : mix(descend(left - 1, seed + left % 3), left);
}

static uint64_t recursion(uint64_t seed)
{
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 10; i++)
		hash = mix(hash, descend(1500 + i, seed));
	return hash;
}

NOINLINE static uint64_t jump_from(jmp_buf landing, unsigned left, int code)
{
	uint64_t hash = compute(left);

	if (left == 0)
		longjmp(landing, code);
	return mix(hash, jump_from(landing, left - 1, code));
}

static uint64_t jumps(uint64_t seed)
{
	volatile uint64_t hash = seed;
	volatile int round;

	for (round = 1; round < 20; round++) {
		jmp_buf landing;
		int code = setjmp(landing);

		if (code == 0)
			hash += jump_from(landing, (unsigned)round % 7, round);
		hash = mix(hash, (uint64_t)code);
	}
	return hash;
}

/* Set here and by system calls that fail. */
static uint64_t error_numbers(uint64_t seed)
{
	uint64_t hash = 0;

	for (int i = 1; i < 60; i++) {
		errno = i;
		hash = mix(hash, compute(seed + (uint64_t)i));
		hash = mix(hash, (uint64_t)errno);
		if (close(-1) != -1 || lseek(STDIN_FILENO, 0, 99) != -1)
			return 0;
		hash = mix(hash, compute(seed));
		hash = mix(hash, (uint64_t)errno);
	}
	return hash;
}

static uint64_t allocations(uint64_t seed)
{
	uint8_t *blocks[40] = {NULL};
	size_t sizes[COUNT(blocks)] = {0};
	uint64_t hash = 0;

	for (size_t i = 0; i < 2000; i++) {
		uint64_t random = next_random(&seed);
		size_t at = random % COUNT(blocks), size = 1 + (random >> 20) % 700;

		for (size_t j = 0; j < sizes[at]; j++) {
			if (blocks[at][j] != (uint8_t)(sizes[at] + j))
				return i;
		}
		if (random & 64) {
			free(blocks[at]);
			blocks[at] = malloc(size);
		} else {
			blocks[at] = realloc(blocks[at], size);
		}
		if (blocks[at] == NULL)
			return 1;
		sizes[at] = size;
		for (size_t j = 0; j < size; j++)
			blocks[at][j] = (uint8_t)(size + j);
		hash = mix(hash, size);
	}
	for (size_t i = 0; i < COUNT(blocks); i++)
		free(blocks[i]);
	return hash;
}

/* Formats, parses, and writes to a stream in memory. */
static uint64_t streams(uint64_t seed)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	uint64_t hash = 0;

	if (stream == NULL)
		return 0;
	for (int i = 0; i < 150; i++) {
		char number[64];
		double x = (double)(next_random(&seed) >> 40) / 1000, back = 0;

		snprintf(number, sizeof(number), "%.17g", x);
		if (sscanf(number, "%lf", &back) != 1 || back != x || strtod(number, NULL) != x)
			return 1;
		fprintf(stream, "%s %d %" PRIx64 "\n", number, i, compute(seed % 1000));
	}
	fclose(stream);
	for (size_t i = 0; i < size; i++)
		hash = mix(hash, (uint8_t)text[i]);
	free(text);
	return hash;
}

NOINLINE static uint64_t on_stack(size_t size, uint64_t seed)
{
	uint8_t *block = alloca(size), array[size];
	uint64_t hash = 0;

	for (size_t i = 0; i < size; i++) {
		block[i] = (uint8_t)(i * seed);
		array[i] = (uint8_t)(i + seed);
	}
	hash = compute(seed);
	for (size_t i = 0; i < size; i++)
		hash = mix(hash, block[i] * 256u + array[i]);
	return hash;
}

static uint64_t stack_memory(uint64_t seed)
{
	uint64_t hash = 0;

	for (size_t size = 1; size < 1000; size += 37)
		hash = mix(hash, on_stack(size, seed + size));
	return hash;
}

static _Thread_local uint64_t own[50];
static _Thread_local uint64_t *own_pointer;

static uint64_t thread_locals(uint64_t seed)
{
	uint64_t hash = 0;

	own_pointer = own;
	for (size_t i = 0; i < COUNT(own); i++) {
		own[i] = seed * i;
		hash = mix(hash, compute(i));
		own[i] += hash;
	}
	for (size_t i = 0; i < COUNT(own); i++)
		hash = mix(hash, own_pointer[i]);
	return own_pointer == own ? hash : 0;
}

/* Functions of the C library that keep vectors in registers, beside loops that do. */
static uint64_t strings(uint64_t seed)
{
	char text[3000], copy[3000];
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('a' + next_random(&seed) % 26);
	text[sizeof(text) - 1] = '\0';
	for (size_t i = 0; i < 60; i++) {
		strcpy(copy, text + i);
		if (strlen(copy) != strlen(text) - i || memcmp(copy, text + i, strlen(copy)) != 0)
			return 1;
		for (const char *at = copy; (at = strchr(at, 'w')) != NULL; at++)
			hash = mix(hash, (uint64_t)(at - copy));
		memmove(copy + 100, copy, 1000 + i);
		for (size_t j = 0; j < 1500; j++)
			hash += (uint8_t)copy[j] * j;
		hash = mix(hash, i);
	}
	return hash;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_flag spinning = ATOMIC_FLAG_INIT;
static uint64_t guarded, guarded_copy;

/* What two locks protect stays consistent, although their holders are preempted. */
static uint64_t locks(uint64_t seed)
{
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 30; i++) {
		pthread_mutex_lock(&mutex);
		if (guarded != guarded_copy)
			return i;
		guarded++;
		hash = mix(hash, compute(seed + i));
		guarded_copy++;
		pthread_mutex_unlock(&mutex);
		while (atomic_flag_test_and_set_explicit(&spinning, memory_order_acquire))
			;
		hash = mix(hash, collatz(i + 1));
		atomic_flag_clear_explicit(&spinning, memory_order_release);
	}
	return hash;
}

static _Thread_local volatile uint64_t handled;
static _Thread_local sigjmp_buf escape;
static _Thread_local volatile bool escapes;

static void handle(int number)
{
	handled = mix(handled, compute((uint64_t)number));
	if (escapes)
		siglongjmp(escape, 1);
}

/* Handlers have probes too, and leave by a jump every other time. */
static uint64_t signals(uint64_t seed)
{
	struct sigaction action = {.sa_handler = handle};
	volatile uint64_t hash = 0;
	volatile int i;

	handled = seed;
	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < 20; i++) {
		escapes = i % 2;
		if (sigsetjmp(escape, 1) == 0) {
			pthread_kill(pthread_self(), SIGUSR1);
			hash = mix(hash, 1);
		}
		hash = mix(hash, compute(seed));
	}
	return mix(hash, handled);
}

int main(void)
{
	static const struct job jobs[] = {
		{"registers", registers},
		{"doubles", doubles},
		{"x87", x87},
		{"vectors", vectors},
		{"rounding", rounding},
		{"sorted", sorted},
		{"recursion", recursion},
		{"jumps", jumps},
		{"error_numbers", error_numbers},
		{"allocations", allocations},
		{"streams", streams},
		{"stack_memory", stack_memory},
		{"thread_locals", thread_locals},
		{"strings", strings},
		{"locks", locks},
		{"signals", signals},
	};

	return run_jobs(jobs, COUNT(jobs), 40);
}
