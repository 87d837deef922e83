/*
 * Transforms a complex signal with the iterative radix-2 FFT, four times, which gives a multiple of it back. The
 * twiddle factors are precomputed.
 */
#include <math.h>

#include "kernel.h"

#define TRANSFORMS 4

struct complex_number {
	double re, im;
};

static size_t bits;
static struct complex_number *signal, *results[2], *twiddles;

void prepare(void)
{
	uint64_t seed = 5;
	double circle = 2 * acos(-1.0);
	size_t count;

	if (signal != NULL)
		return;
	bits = 17 + kernel_scale;
	count = (size_t)1 << bits;
	signal = allocate(count, sizeof(*signal));
	results[0] = allocate(count, sizeof(*signal));
	results[1] = allocate(count, sizeof(*signal));
	twiddles = allocate(count / 2, sizeof(*twiddles));
	for (size_t i = 0; i < count; i++) {
		signal[i].re = next_fraction(&seed) - 0.5;
		signal[i].im = next_fraction(&seed) - 0.5;
	}
	for (size_t i = 0; i < count / 2; i++) {
		twiddles[i].re = cos(circle * (double)i / (double)count);
		twiddles[i].im = -sin(circle * (double)i / (double)count);
	}
}

/* Copies the input to the places where the butterflies expect it: the index with its bits in reverse order. */
static void permute(size_t count, const struct complex_number *from, struct complex_number *restrict to)
{
	size_t reversed = 0;

	for (size_t i = 0; i < count; i++) {
		size_t bit = count >> 1;

		to[reversed] = from[i];
		/* Adds one from the top: the carry goes to the lower bits. */
		while (reversed & bit) {
			reversed ^= bit;
			bit >>= 1;
		}
		reversed |= bit;
	}
}

static void butterflies(size_t count, struct complex_number *values, const struct complex_number *factors)
{
	for (size_t half = 1; half < count; half *= 2) {
		size_t step = count / (2 * half);

		for (size_t start = 0; start < count; start += 2 * half) {
			struct complex_number *low = &values[start], *high = &values[start + half];

			for (size_t i = 0; i < half; i++) {
				struct complex_number w = factors[i * step];
				double re = high[i].re * w.re - high[i].im * w.im;
				double im = high[i].re * w.im + high[i].im * w.re;

				high[i].re = low[i].re - re;
				high[i].im = low[i].im - im;
				low[i].re += re;
				low[i].im += im;
			}
		}
	}
}

uint64_t kernel(void)
{
	size_t count = (size_t)1 << bits;
	const struct complex_number *from = signal;

	for (size_t i = 0; i < TRANSFORMS; i++) {
		struct complex_number *to = results[i % 2];

		permute(count, from, to);
		butterflies(count, to, twiddles);
		from = to;
	}
	return checksum((const double *)from, 2 * count);
}
