/*
 * Pointers, recursion and unusual control flow: what a pass meets in a function's entry and in calls that do not return
 * the usual way.
 */
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include "hash.h"

#define NOINLINE __attribute__((noinline))
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void *allocate(size_t size)
{
	void *memory = malloc(size);

	if (memory == NULL) {
		fputs("no memory\n", stderr);
		exit(1);
	}
	return memory;
}

struct node {
	struct node *next;
	uint64_t value;
};

NOINLINE static struct node *make_list(size_t length, uint64_t seed)
{
	struct node *head = NULL;

	for (size_t i = 0; i < length; i++) {
		struct node *node = allocate(sizeof(*node));

		node->value = next_random(&seed);
		node->next = head;
		head = node;
	}
	return head;
}

NOINLINE static uint64_t walk(const struct node *node)
{
	uint64_t hash = 0;

	for (; node != NULL; node = node->next)
		hash = mix(hash, node->value);
	return hash;
}

NOINLINE static struct node *reverse(struct node *node)
{
	struct node *reversed = NULL;

	while (node != NULL) {
		struct node *next = node->next;

		node->next = reversed;
		reversed = node;
		node = next;
	}
	return reversed;
}

/* Removes the even values through a pointer to the link, so that the head is no special case. */
NOINLINE static void remove_even(struct node **link)
{
	while (*link != NULL) {
		struct node *node = *link;

		if (node->value % 2 == 0) {
			*link = node->next;
			free(node);
		} else {
			link = &node->next;
		}
	}
}

/* A cycle has no end to test for: the tortoise and the hare find how long it is. */
NOINLINE static uint64_t cycle_length(const struct node *head)
{
	const struct node *slow = head, *fast = head;
	uint64_t length = 0;

	do {
		slow = slow->next;
		fast = fast->next->next;
	} while (slow != fast);
	do {
		slow = slow->next;
		length++;
	} while (slow != fast);
	return length;
}

static void free_list(struct node *node)
{
	while (node != NULL) {
		struct node *next = node->next;

		free(node);
		node = next;
	}
}

static uint64_t lists(void)
{
	uint64_t hash = 0;

	for (size_t length = 1; length < 3000; length = length * 3 + 1) {
		struct node *head = make_list(length, length), *last;

		hash = mix(hash, walk(head));
		head = reverse(head);
		hash = mix(hash, walk(head));
		for (last = head; last->next != NULL;)
			last = last->next;
		last->next = head;
		hash = mix(hash, cycle_length(head));
		last->next = NULL;
		remove_even(&head);
		hash = mix(hash, walk(head));
		free_list(head);
	}
	return hash;
}

struct tree {
	struct tree *left, *right;
	uint64_t key;
};

NOINLINE static struct tree *insert(struct tree *tree, uint64_t key)
{
	if (tree == NULL) {
		tree = allocate(sizeof(*tree));
		tree->left = tree->right = NULL;
		tree->key = key;
	} else if (key < tree->key) {
		tree->left = insert(tree->left, key);
	} else if (key > tree->key) {
		tree->right = insert(tree->right, key);
	}
	return tree;
}

static size_t depth(const struct tree *tree)
{
	size_t left, right;

	if (tree == NULL)
		return 0;
	left = depth(tree->left);
	right = depth(tree->right);
	return 1 + (left > right ? left : right);
}

/* Half recursion and half loop, which is what the optimiser makes of a call at the end. */
static uint64_t sum(const struct tree *tree)
{
	uint64_t total = 0;

	for (; tree != NULL; tree = tree->right)
		total = mix(total + sum(tree->left), tree->key);
	return total;
}

static void free_tree(struct tree *tree)
{
	if (tree == NULL)
		return;
	free_tree(tree->left);
	free_tree(tree->right);
	free(tree);
}

static uint64_t trees(void)
{
	struct tree *tree = NULL;
	uint64_t seed = 2, hash;

	for (size_t i = 0; i < 20000; i++)
		tree = insert(tree, next_random(&seed) % 30000);
	hash = mix(depth(tree), sum(tree));
	free_tree(tree);
	return hash;
}

static int is_odd(unsigned n);

NOINLINE static int is_even(unsigned n)
{
	return n == 0 ? 1 : is_odd(n - 1);
}

NOINLINE static int is_odd(unsigned n)
{
	return n == 0 ? 0 : is_even(n - 1);
}

static unsigned ackermann(unsigned m, unsigned n)
{
	if (m == 0)
		return n + 1;
	return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static unsigned hofstadter_male(unsigned n);

static unsigned hofstadter_female(unsigned n)
{
	return n == 0 ? 1 : n - hofstadter_male(hofstadter_female(n - 1));
}

static unsigned hofstadter_male(unsigned n)
{
	return n == 0 ? 0 : n - hofstadter_female(hofstadter_male(n - 1));
}

static unsigned hofstadter_q(unsigned n)
{
	return n < 3 ? 1 : hofstadter_q(n - hofstadter_q(n - 1)) + hofstadter_q(n - hofstadter_q(n - 2));
}

static uint64_t recursion(void)
{
	uint64_t hash = 0;

	for (unsigned n = 0; n < 300; n++)
		hash = mix(hash, (uint64_t)(is_even(n) * 2 + is_odd(n * 3)));
	hash = mix(hash, ackermann(2, 30));
	hash = mix(hash, ackermann(3, 5));
	for (unsigned n = 0; n < 40; n++)
		hash = mix(hash, (uint64_t)hofstadter_female(n) << 32 | hofstadter_male(n));
	return mix(hash, hofstadter_q(19));
}

typedef uint64_t step(uint64_t value, unsigned left);

static step step_add, step_shift, step_multiply;

static step *const steps[] = {step_add, step_shift, step_multiply};

NOINLINE static uint64_t next_step(uint64_t value, unsigned left)
{
	return left == 0 ? value : steps[value % COUNT(steps)](value, left - 1);
}

static uint64_t step_add(uint64_t value, unsigned left)
{
	return next_step(value + 0x1357, left) ^ value;
}

static uint64_t step_shift(uint64_t value, unsigned left)
{
	return next_step(value ^ value >> 5, left) + 1;
}

static uint64_t step_multiply(uint64_t value, unsigned left)
{
	return next_step(value * 0x2545f4914f6cdd1d, left);
}

static uint64_t function_pointers(void)
{
	uint64_t hash = 0;

	for (unsigned left = 0; left < 500; left += 7)
		hash = mix(hash, next_step(left, left));
	return hash;
}

/* The hash after the call keeps a frame for each level. */
NOINLINE static uint64_t descend(unsigned left)
{
	return left == 0 ? 1 : mix(descend(left - 1), left);
}

static uint64_t deep_recursion(void)
{
	return descend(20000);
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* The C library, which has no probes, calls back into code that has some. */
static uint64_t callbacks(void)
{
	uint32_t numbers[3000];
	uint64_t seed = 3, hash = 0;

	for (size_t i = 0; i < COUNT(numbers); i++)
		numbers[i] = (uint32_t)next_random(&seed) % 10000;
	qsort(numbers, COUNT(numbers), sizeof(*numbers), compare);
	for (size_t i = 0; i < COUNT(numbers); i++)
		hash = mix(hash, numbers[i]);
	for (uint32_t key = 0; key < 10000; key += 3) {
		const uint32_t *found = bsearch(&key, numbers, COUNT(numbers), sizeof(*numbers), compare);

		hash = mix(hash, found == NULL ? 0 : *found + 1);
	}
	return hash;
}

static jmp_buf landing;

NOINLINE static uint64_t throw_from(unsigned depth_left, unsigned code)
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < 20; i++) {
		hash = mix(hash, i);
		if (i == 11) {
			if (depth_left == 0)
				longjmp(landing, (int)code);
			hash += throw_from(depth_left - 1, code);
		}
	}
	return hash;
}

static uint64_t jumps(void)
{
	/* What changes between setjmp and longjmp must be volatile to keep its value. */
	volatile uint64_t hash = 0;
	volatile unsigned round;

	for (round = 1; round < 200; round++) {
		int code = setjmp(landing);

		if (code == 0)
			hash += throw_from(round % 9, round);
		hash = mix(hash, (uint64_t)code);
	}
	return hash;
}

NOINLINE static void fill(uint8_t *memory, size_t size, uint8_t value)
{
	memset(memory, value, size);
}

/* The stack pointer moves with each trip. */
NOINLINE static uint64_t stack_memory(size_t count)
{
	const uint8_t *blocks[40];
	uint64_t hash = 0;

	for (size_t i = 0; i < count; i++) {
		uint8_t *block = alloca(i * 13 + 1);

		fill(block, i * 13 + 1, (uint8_t)(i * 7));
		blocks[i] = block;
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < i * 13 + 1; j++)
			hash = mix(hash, blocks[i][j]);
	}
	return hash;
}

NOINLINE static uint64_t variable_length(size_t count)
{
	uint64_t hash = 0;

	for (size_t length = 1; length < count; length++) {
		uint32_t array[length];

		for (size_t i = 0; i < length; i++)
			array[i] = (uint32_t)(i * length);
		for (size_t i = length; i-- > 0;)
			hash = mix(hash, array[i]);
	}
	return hash;
}

static uint64_t stack_use(void)
{
	return mix(stack_memory(40), variable_length(60));
}

/* The register that says how many vector registers hold arguments is live at the entry. */
NOINLINE static uint64_t mix_arguments(const char *kinds, ...)
{
	va_list arguments;
	uint64_t hash = 0;

	va_start(arguments, kinds);
	for (const char *kind = kinds; *kind != '\0'; kind++) {
		switch (*kind) {
		case 'i':
			hash = mix(hash, (uint64_t)va_arg(arguments, int));
			break;
		case 'd':
			hash = mix_double(hash, va_arg(arguments, double));
			break;
		case 'D':
			hash = mix_double(hash, (double)va_arg(arguments, long double));
			break;
		case 's':
			hash = mix(hash, (uint64_t)strlen(va_arg(arguments, const char *)));
			break;
		}
	}
	va_end(arguments);
	return hash;
}

static uint64_t variadic(void)
{
	uint64_t hash = 0;

	for (int i = 0; i < 100; i++) {
		double x = i / 3.0;

		hash = mix(hash, mix_arguments(""));
		hash = mix(hash, mix_arguments("idsd", i, x, "weft", -x));
		hash = mix(hash, mix_arguments("dddddddddd", x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, 2.0, -x, x));
		hash = mix(hash, mix_arguments("iiiiiiiiD", i, 1, 2, 3, 4, 5, 6, i * 2, (long double)x));
	}
	return hash;
}

/* A small interpreter whose only branch is a computed goto: an indirect jump with many targets that is also a loop. */
__extension__ NOINLINE static uint64_t interpret(const uint8_t *program, uint64_t start)
{
	static const void *const labels[] = {&&stop, &&add, &&multiply, &&decrement, &&jump_if_not_zero, &&swap};
	uint64_t accumulator = 1, counter = start;
	const uint8_t *at = program;

	goto *labels[*at];
add:
	accumulator += counter;
	at++;
	goto *labels[*at];
multiply:
	accumulator *= 0xd1342543de82ef95;
	at++;
	goto *labels[*at];
decrement:
	counter--;
	at++;
	goto *labels[*at];
jump_if_not_zero:
	at = counter != 0 ? program + at[1] : at + 2;
	goto *labels[*at];
swap:
	accumulator = accumulator << 32 | accumulator >> 32;
	at++;
	goto *labels[*at];
stop:
	return accumulator;
}

static uint64_t computed_goto(void)
{
	static const uint8_t program[] = {1, 2, 5, 3, 4, 0, 2, 1, 0};
	uint64_t hash = 0;

	for (uint64_t start = 1; start < 300; start++)
		hash = mix(hash, interpret(program, start));
	return hash;
}

struct large {
	uint64_t parts[9];
};

/* The result goes through a hidden pointer, and the argument through the stack. */
NOINLINE static struct large turn(struct large from, unsigned by)
{
	struct large to;

	for (unsigned i = 0; i < 9; i++)
		to.parts[(i + by) % 9] = mix(from.parts[i], by);
	return to;
}

static uint64_t structures(void)
{
	struct large value = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
	uint64_t hash = 0;

	for (unsigned i = 0; i < 500; i++)
		value = turn(value, i % 11);
	for (unsigned i = 0; i < 9; i++)
		hash = mix(hash, value.parts[i]);
	return hash;
}

/* The carry of one addition is the input of the next: flags that are live for long. */
NOINLINE static uint64_t add_wide(uint64_t *to, const uint64_t *from, size_t length)
{
	uint64_t carry = 0;

	for (size_t i = 0; i < length; i++) {
		uint64_t part;
		uint64_t first = (uint64_t)__builtin_add_overflow(to[i], carry, &part);

		carry = first + (uint64_t)__builtin_add_overflow(part, from[i], &to[i]);
	}
	return carry;
}

static uint64_t carries(void)
{
	uint64_t numbers[2][37], seed = 4, hash = 0;

	for (size_t i = 0; i < 37; i++) {
		numbers[0][i] = next_random(&seed);
		numbers[1][i] = i % 5 == 0 ? next_random(&seed) : ~numbers[0][i];
	}
	for (size_t i = 0; i < 200; i++)
		hash = mix(hash, add_wide(numbers[i % 2], numbers[(i + 1) % 2], 1 + i % 37));
	for (size_t i = 0; i < 37; i++)
		hash = mix(hash, numbers[0][i] ^ numbers[1][i]);
	return hash;
}

int main(void)
{
	print_hash("lists", lists());
	print_hash("trees", trees());
	print_hash("recursion", recursion());
	print_hash("function_pointers", function_pointers());
	print_hash("deep_recursion", deep_recursion());
	print_hash("callbacks", callbacks());
	print_hash("jumps", jumps());
	print_hash("stack_use", stack_use());
	print_hash("variadic", variadic());
	print_hash("computed_goto", computed_goto());
	print_hash("structures", structures());
	print_hash("carries", carries());
	return 0;
}
