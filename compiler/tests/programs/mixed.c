/*
 * Code that the compiler does not see: functions in assembler (mixed.S) that call back, and assembler within functions,
 * in loops and as the jump that closes one.
 */
#include <stddef.h>

#include "hash.h"

#define NOINLINE __attribute__((noinline))
#define COUNT 64

__attribute__((visibility("hidden"))) uint64_t fold(const uint64_t *values, size_t count, uint64_t start,
						     uint64_t (*step)(uint64_t, uint64_t));

static uint64_t values[COUNT];

NOINLINE static uint64_t step(uint64_t hash, uint64_t value)
{
	for (uint64_t i = 0; i < value % 300; i++)
		hash = mix(hash, i);
	return hash;
}

/* The frames of both languages alternate. */
NOINLINE static uint64_t nested_step(uint64_t hash, uint64_t value)
{
	return step(fold(values, value % 9, hash, step), value);
}

static unsigned depth;

NOINLINE static uint64_t deep_step(uint64_t hash, uint64_t value)
{
	if (depth == 5)
		return step(hash, value);
	depth++;
	hash = fold(values, 1 + value % 3, mix(hash, value), value % 4 == 0 ? nested_step : deep_step);
	depth--;
	return hash;
}

/* The text moves its count, its source and its target. */
NOINLINE static uint64_t string_instructions(size_t rounds)
{
	uint8_t from[200], to[200];
	uint64_t hash = 0;

	for (size_t round = 0; round < rounds; round++) {
		void *at = from, *source = from, *target = to;
		size_t count = sizeof(from), size = sizeof(to);

		__asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"((uint8_t)round) : "memory");
		from[round % sizeof(from)] ^= 0x55;
		__asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(size) : : "memory");
		for (size_t i = 0; i < sizeof(to); i += 3)
			hash = mix(hash, to[i]);
		hash = mix(hash, (uint64_t)((uint8_t *)at - from));
	}
	return hash;
}

/* The flags of one text are a value of the program. */
NOINLINE static uint64_t flags(uint64_t from, size_t rounds)
{
	uint64_t hash = from;

	for (size_t i = 0; i < rounds; i++) {
		uint64_t sum = hash;
		uint8_t carry, odd;

		__asm__("addq %3, %0" : "+r"(sum), "=@ccc"(carry), "=@ccp"(odd) : "r"(from + i * hash) : );
		hash = mix(sum, (uint64_t)carry * 2 + odd);
	}
	return hash;
}

/* Clobbers every register that it may. */
NOINLINE static uint64_t clobbers(size_t rounds)
{
	uint64_t a = 1, b = 2, hash = 0;

	for (size_t i = 0; i < rounds; i++) {
		a += b ^ i;
		__asm__ volatile("xorl %%eax, %%eax\n\tmovq %%rax, %%r8\n\tmovq %%rax, %%r11\n\tpxor %%xmm0, %%xmm0"
				 :
				 :
				 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm7", "cc", "memory");
		b = b * 3 + (a >> 7);
		hash = mix(hash, a - b);
	}
	return hash;
}

/* The only way back is a jump that the text makes. */
NOINLINE static uint64_t jump_loop(uint64_t rounds)
{
	uint64_t hash = 0, i = 0;

again:
	hash = mix(hash, i++);
	__asm__ goto("cmpq %1, %0\n\tjb %l[again]" : : "r"(i), "r"(rounds) : "cc" : again);
	return hash;
}

/* Leaves an ordinary loop by such a jump. */
NOINLINE static uint64_t jump_out(uint64_t limit)
{
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 5000; i++) {
		hash = mix(hash, i);
		__asm__ goto("cmpq %1, %0\n\tje %l[out]" : : "r"(i), "r"(limit) : "cc" : out);
	}
	return hash;
out:
	return ~hash;
}

int main(void)
{
	uint64_t seed = 6, hash = 0;

	for (size_t i = 0; i < COUNT; i++)
		values[i] = next_random(&seed);
	print_hash("fold", fold(values, COUNT, 1, step));
	print_hash("nested", fold(values, COUNT, 2, nested_step));
	for (uint64_t i = 0; i < 20; i++)
		hash = mix(hash, fold(values, i, i, deep_step));
	print_hash("deep", hash);
	print_hash("string_instructions", string_instructions(500));
	print_hash("flags", flags(7, 10000));
	print_hash("clobbers", clobbers(10000));
	print_hash("jump_loop", mix(jump_loop(10000), jump_loop(1)));
	print_hash("jump_out", mix(jump_out(300), jump_out(9000)));
	return 0;
}
