/*
 * Loops of many shapes, each called with several hundred pairs of bounds: near the ends of the integer types, with odd
 * trip counts, and with none. A pass that transforms a loop, or that derives a trip count, gets some of them wrong
 * first.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "hash.h"

#define SHAPE __attribute__((noinline)) static uint64_t
#define BUFFER_SIZE 4096

__extension__ typedef unsigned __int128 uint128;

static uint8_t buffer[BUFFER_SIZE];
static uint32_t words[BUFFER_SIZE];

SHAPE up_int(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i < to; i++)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

/* The plain sums invite a closed form or vectors. */
SHAPE up_unsigned_sum(uint64_t a, uint64_t b)
{
	uint32_t sum = 0, to = (uint32_t)b;

	for (uint32_t i = (uint32_t)a; i < to; i++)
		sum += i * i;
	return sum;
}

SHAPE up_int64(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int64_t to = (int64_t)b;

	for (int64_t i = (int64_t)a; i < to; i++)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

SHAPE up_size(uint64_t a, uint64_t b)
{
	size_t sum = 1;

	for (size_t i = a; i < b; i++)
		sum = sum * 3 + (i ^ (i >> 3));
	return sum;
}

/* The comparison that is always true for the greatest bound, so the second exit ends the loop. */
SHAPE up_inclusive(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i <= to; i++) {
		hash = mix(hash, (uint64_t)i);
		if (i == to)
			break;
	}
	return hash;
}

SHAPE up_not_equal(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i != to; i++)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

SHAPE down_int(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i > to; i--)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

/* After the last trip at bound zero the variable wraps. */
SHAPE down_unsigned(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t i = (uint32_t)a, to = (uint32_t)b;

	while (i-- > to)
		hash = mix(hash, i);
	return mix(hash, i);
}

SHAPE down_not_equal(uint64_t a, uint64_t b)
{
	uint64_t sum = 0;
	int64_t to = (int64_t)b;

	for (int64_t i = (int64_t)a; i != to; i--)
		sum += (uint64_t)i ^ (sum >> 7);
	return sum;
}

SHAPE stride_3_int(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i < to;) {
		hash = mix(hash, (uint64_t)i);
		if (__builtin_add_overflow(i, 3, &i))
			break;
	}
	return hash;
}

/* Seven at once and the rest one by one, as a loop that was unrolled by hand. */
SHAPE stride_7_unsigned(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t i = (uint32_t)a, to = (uint32_t)b;

	for (; i < to && to - i >= 7; i += 7)
		hash = mix(hash, (uint64_t)i * 7);
	for (; i < to; i++)
		hash = mix(hash, i);
	return hash;
}

SHAPE stride_down_7(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int64_t to = (int64_t)b;

	for (int64_t i = (int64_t)a; i > to;) {
		hash = mix(hash, (uint64_t)i);
		if (__builtin_sub_overflow(i, 7, &i))
			break;
	}
	return hash;
}

/* A stride so wide that every pair of bounds needs a few trips only. */
SHAPE stride_wide(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b;) {
		hash = mix(hash, i);
		if (__builtin_add_overflow(i, UINT64_C(1) << 58, &i))
			break;
	}
	return hash;
}

SHAPE bytes_int8(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int8_t to = (int8_t)b;

	for (int8_t i = (int8_t)a; i < to; i++)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

SHAPE bytes_uint8_wrap(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint8_t to = (uint8_t)b;

	for (uint8_t i = (uint8_t)a; i != to; i++)
		hash = mix(hash, i);
	return hash;
}

SHAPE short_int16_down(uint64_t a, uint64_t b)
{
	uint64_t sum = 0;
	int16_t to = (int16_t)b;

	for (int16_t i = (int16_t)a; i > to; i--)
		sum += (uint64_t)(i * i);
	return sum;
}

/* Three is odd, so the variable meets every value before it comes round to the bound. */
SHAPE short_uint16_wrap_3(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint16_t to = (uint16_t)b;

	for (uint16_t i = (uint16_t)a; i != to; i = (uint16_t)(i + 3))
		hash = hash * 5 + i;
	return hash;
}

SHAPE wrap_unsigned(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t to = (uint32_t)b;

	for (uint32_t i = (uint32_t)a; i != to; i++)
		hash = mix(hash, i);
	return hash;
}

SHAPE wrap_uint64_down(uint64_t a, uint64_t b)
{
	uint64_t sum = 0;

	for (uint64_t i = b; i != a; i--)
		sum = (sum << 1) + i;
	return sum;
}

SHAPE do_while(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t i = (uint32_t)a, to = (uint32_t)b;

	do
		hash = mix(hash, i);
	while (i++ < to);
	return mix(hash, i);
}

SHAPE pointer_up(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	const uint8_t *end = buffer + b % (BUFFER_SIZE + 1);

	for (const uint8_t *p = buffer + a % (BUFFER_SIZE + 1); p < end; p++)
		hash = mix(hash, *p);
	return hash;
}

SHAPE pointer_down(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	const uint32_t *start = words + a % (BUFFER_SIZE + 1);

	for (const uint32_t *p = words + b % (BUFFER_SIZE + 1); p > start;)
		hash = mix(hash, *--p);
	return hash;
}

SHAPE pointer_store(uint64_t a, uint64_t b)
{
	uint32_t target[256];
	size_t from = a % 256, to = b % 257;
	uint64_t hash = 0;

	for (size_t i = 0; i < 256; i++)
		target[i] = words[i];
	for (uint32_t *p = target + from; p < target + to; p++)
		*p = *p * 3 + 1;
	for (size_t i = 0; i < 256; i++)
		hash = mix(hash, target[i]);
	return hash;
}

SHAPE early_exit(uint64_t a, uint64_t b)
{
	uint64_t hash = 0, i;

	for (i = a; i < b; i++) {
		hash = mix(hash, i);
		if (hash % 97 == 0)
			break;
	}
	return mix(hash, i);
}

SHAPE two_exits(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t to = (uint32_t)b;

	for (uint32_t i = (uint32_t)a; i < to; i++) {
		if (buffer[i % BUFFER_SIZE] == 251)
			return mix(hash, i);
		hash = mix(hash, i);
		if (buffer[(i + 1) % BUFFER_SIZE] == 17 && hash % 5 == 0)
			goto second;
	}
	return hash;
second:
	return ~hash;
}

SHAPE exit_in_middle(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t i = (uint32_t)a, to = (uint32_t)b;

	for (;;) {
		hash = mix(hash, i);
		if (i >= to)
			break;
		hash += i;
		i++;
	}
	return hash;
}

SHAPE bound_shrinks(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t to = (uint32_t)b;

	for (uint32_t i = (uint32_t)a; i < to; i++) {
		hash = mix(hash, to - i);
		if (hash % 4 == 0 && to - i > 2)
			to--;
	}
	return hash;
}

/* The bound grows a few times, up to the end of the type. */
SHAPE bound_grows(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t to = (uint32_t)b, growths = 0;

	for (uint32_t i = (uint32_t)a; i < to; i++) {
		hash = mix(hash, to - i);
		if (hash % 3 == 0 && growths < 50 && to < UINT32_MAX) {
			to++;
			growths++;
		}
	}
	return mix(hash, growths);
}

SHAPE step_by_data(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b;) {
		uint64_t step = 1 + buffer[i % BUFFER_SIZE] % 9;

		hash = mix(hash, i);
		if (b - i <= step)
			break;
		i += step;
	}
	return hash;
}

SHAPE nested_constant(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int to = (int)b;

	for (int i = (int)a; i < to; i++) {
		for (int j = 0; j < 5; j++)
			hash = mix(hash, (uint64_t)(i ^ j));
	}
	return hash;
}

SHAPE nested_variable(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b; i++) {
		for (uint64_t j = 0; j < (i & 15); j++)
			hash = hash * 3 + buffer[(i + j) % BUFFER_SIZE];
		hash ^= i;
	}
	return hash;
}

SHAPE triangle(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b; i++) {
		for (uint64_t j = a; j < i; j++)
			hash = mix(hash, i - j);
	}
	return hash;
}

SHAPE triangle_down(uint64_t a, uint64_t b)
{
	uint64_t sum = 0;
	int to = (int)b, from = (int)a;

	for (int i = to; i > from; i--) {
		for (int j = i; j > from; j--)
			sum += words[(unsigned)(i ^ j) % BUFFER_SIZE];
	}
	return sum;
}

SHAPE triangle_3(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b; i++) {
		for (uint64_t j = i; j < b; j++) {
			for (uint64_t k = i; k < j; k++)
				hash += i * j ^ k;
		}
	}
	return hash;
}

/* One of the loops never runs, but no compiler knows which. */
SHAPE either_way(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	int from = (int)a, to = (int)b;

	for (int i = from; i < to; i++)
		hash = mix(hash, (uint64_t)i);
	for (int i = to; i < from; i++)
		hash = mix(hash, ~(uint64_t)i);
	return hash;
}

SHAPE switch_inside(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	unsigned state = 0;

	for (uint64_t i = a; i < b; i++) {
		switch ((state + buffer[i % BUFFER_SIZE]) % 7) {
		case 0:
			state = 3;
			continue;
		case 1:
			hash = mix(hash, i);
			/* fallthrough */
		case 2:
			state++;
			break;
		case 3:
			hash ^= i << 3;
			state = 1;
			break;
		case 4:
			hash += i;
			break;
		default:
			state += 5;
			break;
		}
		hash = hash * 3 + state;
	}
	return hash;
}

SHAPE goto_loop(uint64_t a, uint64_t b)
{
	uint64_t hash = 0, i = a;

again:
	if (i >= b)
		return hash;
	hash = mix(hash, i++);
	goto again;
}

/* A cycle of two blocks that is entered at either: it has no header. */
SHAPE goto_irreducible(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint32_t i = (uint32_t)a, to = (uint32_t)b;

	if (i % 2 != 0)
		goto odd;
even:
	if (i >= to)
		return hash;
	hash = mix(hash, i++);
odd:
	if (i >= to)
		return ~hash;
	hash = hash * 5 + i++;
	goto even;
}

/* Two irreducible cycles, one in the other, whose inner blocks a switch enters. */
SHAPE goto_switch(uint64_t a, uint64_t b)
{
	uint64_t hash = 0, i = a;

	switch (a % 4) {
	case 0:
		for (; i < b; i++) {
			hash = mix(hash, 1);
			/* fallthrough */
	case 1:
			hash = mix(hash, i);
			while (hash % 4 != 0) {
	case 2:
				hash = mix(hash, 2);
			}
			/* fallthrough */
	case 3:
			if (i == UINT64_MAX)
				break;
		}
	}
	return mix(hash, i);
}

SHAPE used_after(uint64_t a, uint64_t b)
{
	int i, to = (int)b;

	for (i = (int)a; i < to; i++) {
		if (words[(unsigned)i % BUFFER_SIZE] % 1021 == 3)
			break;
	}
	return (uint64_t)i;
}

SHAPE two_variables(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (int i = (int)a, j = (int)b; i < j; i++, j--)
		hash = mix(hash, ((uint64_t)i << 32) ^ (uint32_t)j);
	return hash;
}

/* The narrow variables wrap many times while the wide one does not. */
SHAPE three_widths(uint64_t a, uint64_t b)
{
	uint64_t sum = 0, wide = a;
	uint8_t narrow = (uint8_t)a;
	uint16_t middle = (uint16_t)b;

	for (uint64_t i = a; i < b; i++) {
		wide += 0x100000001;
		narrow = (uint8_t)(narrow + 3);
		middle = (uint16_t)(middle - 5);
		sum += wide ^ narrow ^ middle;
	}
	return sum;
}

/* Crosses the boundary between the two halves. */
SHAPE wide_128(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	uint128 from = ((uint128)(a % 3) << 64 | UINT64_MAX) - 9;
	uint128 to = from + (b > a ? b - a : 0);

	for (uint128 i = from; i < to; i++)
		hash = mix(hash, (uint64_t)i ^ (uint64_t)(i >> 64));
	return hash;
}

SHAPE floating(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;
	double to = (double)(b % 5000) / 7;

	for (double x = (double)(a % 5000) / 7; x < to; x += 0.75)
		hash = mix_double(hash, x);
	return hash;
}

SHAPE doubling(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a | 1; i != 0; i <<= 1)
		hash = mix(hash, i ^ b);
	for (int64_t i = (int64_t)b; i > 0; i /= 3)
		hash = mix(hash, (uint64_t)i);
	return hash;
}

SHAPE bit_by_bit(uint64_t a, uint64_t b)
{
	uint64_t count = 0, steps = 0;

	for (uint64_t i = a; i != 0; i &= i - 1)
		count++;
	for (uint64_t i = b; i != 0; i >>= 1)
		steps += i & 1 ? 3 : 1;
	return count << 32 | steps;
}

SHAPE greatest_divisor(uint64_t a, uint64_t b)
{
	uint64_t steps = 0;

	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
		steps++;
	}
	return mix(a, steps);
}

SHAPE collatz(uint64_t a, uint64_t b)
{
	uint64_t value = a ^ b, steps = 0;

	while (value > 1 && steps < 500) {
		value = value % 2 == 0 ? value / 2 : 3 * value + 1;
		steps++;
	}
	return mix(value, steps);
}

__attribute__((noinline)) static uint64_t leaf(uint64_t hash, uint64_t value)
{
	return mix(hash, value + 1);
}

SHAPE calls_leaf(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (uint64_t i = a; i < b; i++)
		hash = leaf(hash, i);
	return hash;
}

SHAPE volatile_counter(uint64_t a, uint64_t b)
{
	uint64_t hash = 0;

	for (volatile uint64_t i = a; i < b; i++)
		hash = mix(hash, i);
	return hash;
}

/* What the bounds mean to a shape: which pairs it can run, and how many trips they take. */
enum direction {
	/* Up to the second bound; none if that is not above the first. */
	UP,
	/* Down to the second bound; none if that is not below the first. */
	DOWN,
	/* As UP and DOWN, but a pair in the other order would overflow. */
	ONLY_UP,
	ONLY_DOWN,
	/* Either of both. */
	BOTH,
	/* Up to the second bound, round the end of the type. */
	WRAP,
	/* The number of trips has a low limit whatever the bounds are. */
	ANY,
};

struct shape {
	const char *name;
	uint64_t (*function)(uint64_t a, uint64_t b);
	enum direction direction;
	unsigned bits;
	bool is_signed;
	uint64_t limit;
};

#define MANY 100000

static const struct shape shapes[] = {
	{"up_int", up_int, UP, 32, true, MANY},
	{"up_unsigned_sum", up_unsigned_sum, UP, 32, false, MANY},
	{"up_int64", up_int64, UP, 64, true, MANY},
	{"up_size", up_size, UP, 64, false, MANY},
	{"up_inclusive", up_inclusive, UP, 32, true, MANY},
	{"up_not_equal", up_not_equal, ONLY_UP, 32, true, MANY},
	{"down_int", down_int, DOWN, 32, true, MANY},
	{"down_unsigned", down_unsigned, DOWN, 32, false, MANY},
	{"down_not_equal", down_not_equal, ONLY_DOWN, 64, true, MANY},
	{"stride_3_int", stride_3_int, UP, 32, true, MANY},
	{"stride_7_unsigned", stride_7_unsigned, UP, 32, false, MANY},
	{"stride_down_7", stride_down_7, DOWN, 64, true, MANY},
	{"stride_wide", stride_wide, ANY, 64, false, MANY},
	{"bytes_int8", bytes_int8, ANY, 8, true, MANY},
	{"bytes_uint8_wrap", bytes_uint8_wrap, ANY, 8, false, MANY},
	{"short_int16_down", short_int16_down, DOWN, 16, true, MANY},
	{"short_uint16_wrap_3", short_uint16_wrap_3, ANY, 16, false, MANY},
	{"wrap_unsigned", wrap_unsigned, WRAP, 32, false, MANY},
	{"wrap_uint64_down", wrap_uint64_down, WRAP, 64, false, MANY},
	{"do_while", do_while, UP, 32, false, MANY},
	{"pointer_up", pointer_up, ANY, 64, false, MANY},
	{"pointer_down", pointer_down, ANY, 64, false, MANY},
	{"pointer_store", pointer_store, ANY, 64, false, MANY},
	{"early_exit", early_exit, UP, 64, false, MANY},
	{"two_exits", two_exits, UP, 32, false, MANY},
	{"exit_in_middle", exit_in_middle, UP, 32, false, MANY},
	{"bound_shrinks", bound_shrinks, UP, 32, false, MANY},
	{"bound_grows", bound_grows, UP, 32, false, MANY},
	{"step_by_data", step_by_data, UP, 64, false, MANY},
	{"nested_constant", nested_constant, UP, 32, true, 5000},
	{"nested_variable", nested_variable, UP, 64, false, 5000},
	{"triangle", triangle, UP, 64, false, 300},
	{"triangle_down", triangle_down, UP, 32, true, 300},
	{"triangle_3", triangle_3, UP, 64, false, 40},
	{"either_way", either_way, BOTH, 32, true, MANY},
	{"switch_inside", switch_inside, UP, 64, false, MANY},
	{"goto_loop", goto_loop, UP, 64, false, MANY},
	{"goto_irreducible", goto_irreducible, UP, 32, false, MANY},
	{"goto_switch", goto_switch, UP, 64, false, 5000},
	{"used_after", used_after, UP, 32, true, MANY},
	{"two_variables", two_variables, UP, 32, true, MANY},
	{"three_widths", three_widths, UP, 64, false, MANY},
	{"wide_128", wide_128, UP, 64, false, MANY},
	{"floating", floating, ANY, 64, false, MANY},
	{"doubling", doubling, ANY, 64, false, MANY},
	{"bit_by_bit", bit_by_bit, ANY, 64, false, MANY},
	{"greatest_divisor", greatest_divisor, ANY, 64, false, MANY},
	{"collatz", collatz, ANY, 64, false, MANY},
	{"calls_leaf", calls_leaf, UP, 64, false, MANY},
	{"volatile_counter", volatile_counter, UP, 64, false, MANY},
};

/* Returns the bound as the shape sees it, in an order that is the same for signed and unsigned types. */
static uint64_t as_seen(const struct shape *shape, uint64_t bound)
{
	uint64_t top = UINT64_C(1) << (shape->bits - 1);

	bound &= top | (top - 1);
	return shape->is_signed ? bound ^ top : bound;
}

static bool can_run(const struct shape *shape, uint64_t a, uint64_t b)
{
	uint64_t from = as_seen(shape, a), to = as_seen(shape, b);
	uint64_t up = from < to ? to - from : 0, down = from > to ? from - to : 0;

	switch (shape->direction) {
	case UP:
		return up <= shape->limit;
	case DOWN:
		return down <= shape->limit;
	case ONLY_UP:
		return down == 0 && up <= shape->limit;
	case ONLY_DOWN:
		return up == 0 && down <= shape->limit;
	case BOTH:
		return up <= shape->limit && down <= shape->limit;
	case WRAP:
		return ((to - from) & (UINT64_MAX >> (64 - shape->bits))) <= shape->limit;
	case ANY:
		return true;
	}
	return false;
}

static const uint64_t bases[] = {
	0,
	1,
	2,
	100,
	INT8_MAX - 1,
	UINT8_MAX,
	INT16_MAX - 2,
	INT16_MAX + 1,
	UINT16_MAX,
	INT32_MAX - 5,
	INT32_MAX,
	(uint64_t)INT32_MAX + 1,
	UINT32_MAX - 3,
	UINT32_MAX,
	INT64_MAX - 8,
	INT64_MAX,
	(uint64_t)INT64_MAX + 1,
	(uint64_t)INT64_MAX + 6,
	UINT64_MAX - 64,
	UINT64_MAX - 1,
	UINT64_MAX,
	0x0123456789abcdef,
};

static const uint64_t distances[] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 127, 128, 255, 257, 1000, 1023, 4099, 20011,
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static uint64_t run(const struct shape *shape)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < COUNT(bases); i++) {
		for (size_t j = 0; j < COUNT(distances); j++) {
			uint64_t near = bases[i], far = near + distances[j], before = near - distances[j];

			if (can_run(shape, near, far))
				hash = mix(hash, shape->function(near, far));
			if (can_run(shape, near, before))
				hash = mix(hash, shape->function(near, before));
			if (can_run(shape, before, near))
				hash = mix(hash, shape->function(before, near));
		}
		/* The ends of the types against each other. */
		for (size_t j = 0; j < COUNT(bases); j++) {
			if (can_run(shape, bases[i], bases[j]))
				hash = mix(hash, shape->function(bases[i], bases[j]));
		}
	}
	return hash;
}

int main(void)
{
	uint64_t seed = 1;

	for (size_t i = 0; i < BUFFER_SIZE; i++) {
		buffer[i] = (uint8_t)next_random(&seed);
		words[i] = (uint32_t)next_random(&seed);
	}
	for (size_t i = 0; i < COUNT(shapes); i++)
		print_hash(shapes[i].name, run(&shapes[i]));
	return 0;
}
