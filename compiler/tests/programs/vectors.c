/*
 * Floating point and vectors: what a probe in a loop or at a function's entry must keep lies in vector and x87
 * registers and in their control words. Build it with -O3 -mavx2 too.
 */
#include <complex.h>
#include <fenv.h>
#include <math.h>
#include <stddef.h>

#include "hash.h"

#define NOINLINE __attribute__((noinline))
#define SIZE 4099

typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));
typedef double double4 __attribute__((vector_size(32)));

static float floats[SIZE];
static double doubles[SIZE], more_doubles[SIZE];
static int32_t ints[SIZE];
static uint8_t bytes[SIZE], more_bytes[SIZE];

/* Lengths around the multiples of the vectors' widths, and the whole arrays. */
static const size_t lengths[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 1001, SIZE};

#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

NOINLINE static float float_sum(const float *values, size_t count)
{
	float sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += values[i] * 1.25f;
	return sum;
}

NOINLINE static double dot(const double *a, const double *b, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Sums that do not wait for each other, so a vector register holds them for the whole loop. */
NOINLINE static double four_sums(const double *values, size_t count)
{
	double s0 = 0, s1 = 1, s2 = 2, s3 = 3;
	size_t i = 0;

	for (; i + 4 <= count; i += 4) {
		s0 += values[i];
		s1 += values[i + 1];
		s2 += values[i + 2];
		s3 += values[i + 3];
	}
	for (; i < count; i++)
		s0 += values[i];
	return (s0 + s1) + (s2 + s3);
}

NOINLINE static int32_t int_reductions(const int32_t *values, size_t count)
{
	uint32_t sum = 0, parity = 0;
	int32_t least = INT32_MAX, greatest = INT32_MIN;

	for (size_t i = 0; i < count; i++) {
		sum += (uint32_t)values[i] * 3;
		parity ^= (uint32_t)values[i];
		least = values[i] < least ? values[i] : least;
		greatest = values[i] > greatest ? values[i] : greatest;
	}
	return (int32_t)(sum ^ parity ^ (uint32_t)least ^ (uint32_t)greatest);
}

NOINLINE static uint64_t byte_sum(const uint8_t *values, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (uint64_t)values[i] * values[i];
	return sum;
}

static uint64_t reductions(void)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < LENGTHS; i++) {
		size_t count = lengths[i];

		hash = mix_double(hash, (double)float_sum(floats, count));
		hash = mix_double(hash, dot(doubles, more_doubles, count));
		hash = mix_double(hash, four_sums(doubles, count));
		hash = mix(hash, (uint64_t)int_reductions(ints, count));
		hash = mix(hash, byte_sum(bytes, count));
	}
	return hash;
}

/* Vectors that the program itself asks for, live from before the loop to after it and over the inner one. */
NOINLINE static uint64_t explicit_vectors(size_t count)
{
	float4 sum = {0.5f, 1.5f, 2.5f, 3.5f}, scale = {1.0f, 0.5f, 0.25f, 0.125f};
	double4 wide = {1, 2, 3, 4};
	int4 elements = {1, -2, 3, -4};
	uint64_t hash = 0;

	for (size_t i = 0; i + 4 <= count; i += 4) {
		float4 part;
		double4 wide_part;
		int4 int_part;

		memcpy(&part, &floats[i], sizeof(part));
		memcpy(&wide_part, &doubles[i], sizeof(wide_part));
		memcpy(&int_part, &ints[i], sizeof(int_part));
		sum += part * scale;
		wide = wide * 0.75 + wide_part;
		elements ^= int_part >> 3;
		for (size_t j = 0; j < (i & 7); j++)
			scale = -scale;
	}
	for (size_t i = 0; i < 4; i++) {
		hash = mix_double(hash, (double)(sum[i] + scale[i]));
		hash = mix_double(hash, wide[i]);
		hash = mix(hash, (uint64_t)elements[i]);
	}
	return hash;
}

/* All argument registers of both kinds are live at the entry. */
NOINLINE static float4 blend(float4 a, float4 b, double x, float y, int i, int j, float4 c, double z, int k, long l,
			     double w, float v, int m, int n)
{
	float scale = (float)(i + j + k + (int)l + m + n);

	return a * scale + b * (float)x - c * y + (float)(z + w) * v;
}

static uint64_t many_arguments(void)
{
	float4 value = {1, 2, 3, 4}, other = {0.5f, 0.25f, -1, -2};
	uint64_t hash = 0;

	for (int i = 0; i < 500; i++) {
		double x = i * 0.01;

		value = blend(value * 0.01f, other, x, 0.5f, i, 3, value, x * 2, 5, 6L, x - 1, 0.125f, -i, 1);
		for (size_t j = 0; j < 4; j++)
			hash = mix_double(hash, (double)value[j]);
	}
	return hash;
}

/* A structure of arrays. */
struct field {
	double height[SIZE];
	double speed[SIZE];
	double slope[SIZE];
};

static struct field fields[2];

NOINLINE static void advance(struct field *restrict to, const struct field *restrict from, size_t count)
{
	for (size_t i = 1; i + 1 < count; i++) {
		double slope = from->height[i - 1] - 2 * from->height[i] + from->height[i + 1];

		to->slope[i] = slope;
		to->speed[i] = from->speed[i] * 0.99 + slope * 0.25;
		to->height[i] = from->height[i] + to->speed[i];
	}
}

static uint64_t stencil(void)
{
	uint64_t hash = 0;

	memcpy(fields[0].height, doubles, sizeof(doubles));
	memcpy(fields[0].speed, more_doubles, sizeof(more_doubles));
	fields[1] = fields[0];
	for (size_t i = 0; i < 60; i++)
		advance(&fields[(i + 1) % 2], &fields[i % 2], i % 5 == 0 ? lengths[i % LENGTHS] : SIZE);
	for (size_t i = 0; i < SIZE; i++)
		hash = mix_double(mix_double(hash, fields[0].height[i]), fields[1].slope[i]);
	return hash;
}

NOINLINE static void move_bytes(uint8_t *to, const uint8_t *from, size_t size)
{
	memcpy(to, from, size);
	memmove(to + size / 3, to, size - size / 3);
	memset(to, (int)size, size / 5);
}

/* Loops that the compiler knows as a copy and a fill. */
NOINLINE static void copy_and_fill(uint8_t *restrict to, const uint8_t *restrict from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = from[i];
	for (size_t i = 0; i < size / 2; i++)
		to[i] = 0x5a;
}

static uint64_t memory(void)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < LENGTHS; i++) {
		move_bytes(more_bytes, bytes, lengths[i]);
		for (size_t j = 0; j < SIZE; j++)
			hash = mix(hash, more_bytes[j]);
		copy_and_fill(more_bytes, bytes, lengths[LENGTHS - 1 - i]);
		for (size_t j = 0; j < SIZE; j++)
			hash = mix(hash, more_bytes[j]);
	}
	return hash;
}

/* Eighty bits of an x87 number; the rest of its sixteen bytes says nothing. */
static uint64_t mix_long_double(uint64_t hash, long double value)
{
	uint64_t low;
	uint16_t high;

	memcpy(&low, &value, sizeof(low));
	memcpy(&high, (const char *)&value + sizeof(low), sizeof(high));
	return mix(mix(hash, low), high);
}

/* Enough variables to fill most of the register stack. */
NOINLINE static uint64_t x87_loop(size_t count)
{
	long double a = 1, b = 2, c = 3, d = 4, e = 5;

	for (size_t i = 0; i < count; i++) {
		a = a * 0.5L + doubles[i];
		b = b + a / 3;
		c = fabsl(c - b) + 1;
		d = sqrtl(d * d + c);
		e = e * 0.75L - d;
	}
	return mix_long_double(mix_long_double(mix_long_double(mix_long_double(mix_long_double(0, a), b), c), d), e);
}

/* The result is on the register stack when the function returns. */
NOINLINE static long double x87_recursion(unsigned n)
{
	return n == 0 ? 1 : x87_recursion(n - 1) * 1.01L + (long double)n / 7;
}

static uint64_t long_doubles(void)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < LENGTHS; i++)
		hash = mix(hash, x87_loop(lengths[i]));
	for (unsigned n = 0; n < 300; n += 13)
		hash = mix_long_double(hash, x87_recursion(n));
	return hash;
}

/* The volatile operands keep each division between the two changes of the mode. */
NOINLINE static uint64_t divide_all(size_t count)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < count; i++) {
		volatile double x = doubles[i], y = 3, quotient;
		volatile long double long_x = doubles[i], long_quotient;

		quotient = x / y;
		long_quotient = long_x / y;
		hash = mix_long_double(mix_double(hash, quotient), long_quotient);
	}
	return hash;
}

static uint64_t rounding(void)
{
	static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
	uint64_t hash = 0;

	for (size_t i = 0; i < 4; i++) {
		if (fesetround(modes[i]) != 0)
			return 0;
		hash = mix(hash, divide_all(500));
		hash = mix(hash, (uint64_t)(fegetround() == modes[i]));
	}
	return hash;
}

/* Conversions between the types, which round or cut. */
NOINLINE static uint64_t conversions(size_t count)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < count; i++) {
		float narrow = (float)doubles[i];
		int64_t cut = (int64_t)(doubles[i] * 1e6);

		hash = mix_double(hash, (double)narrow);
		hash = mix(hash, (uint64_t)cut);
		hash = mix_double(hash, (double)(uint64_t)cut);
		hash = mix(hash, (uint64_t)lrint(doubles[i] * 64));
		hash = mix_double(hash, floor(doubles[i]) + sqrt(fabs(doubles[i])));
	}
	return hash;
}

/* Two vector registers hold the result. */
NOINLINE static double complex rotate(double complex z, double complex by)
{
	return z * by + conj(by);
}

static uint64_t complex_numbers(void)
{
	double complex z = 0.5 + 0.25 * I;
	float complex narrow = 1.0f;
	uint64_t hash = 0;

	for (size_t i = 0; i < 1000; i++) {
		double complex by = doubles[i] / 100 + more_doubles[i] / 100 * I;

		z = rotate(z, by);
		narrow = narrow * (float complex)by + 0.5f;
		hash = mix_double(mix_double(hash, creal(z)), cimag(z));
		hash = mix_double(mix_double(hash, (double)crealf(narrow)), (double)cimagf(narrow));
	}
	/* The points of a small Mandelbrot picture. */
	for (int row = -10; row <= 10; row++) {
		for (int column = -20; column <= 10; column++) {
			double complex c = column / 10.0 + row / 10.0 * I, at = 0;
			unsigned steps = 0;

			while (steps < 100 && creal(at) * creal(at) + cimag(at) * cimag(at) < 4) {
				at = at * at + c;
				steps++;
			}
			hash = mix(hash, steps);
		}
	}
	return hash;
}

int main(void)
{
	uint64_t seed = 5;

	for (size_t i = 0; i < SIZE; i++) {
		doubles[i] = (double)(int64_t)(next_random(&seed) >> 20) / (double)(1 << 30) - 4096;
		doubles[i] /= 64;
		more_doubles[i] = doubles[i] * 0.5 + (double)(i % 17);
		floats[i] = (float)doubles[i];
		ints[i] = (int32_t)next_random(&seed);
		bytes[i] = (uint8_t)next_random(&seed);
	}
	print_hash("reductions", reductions());
	print_hash("explicit_vectors", explicit_vectors(SIZE));
	print_hash("many_arguments", many_arguments());
	print_hash("stencil", stencil());
	print_hash("memory", memory());
	print_hash("long_doubles", long_doubles());
	print_hash("rounding", rounding());
	print_hash("conversions", conversions(SIZE));
	print_hash("complex_numbers", complex_numbers());
	return 0;
}
