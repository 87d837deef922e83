/* Hashes each word of a text and looks for the words whose hash is that of one of four keys. */
#include "kernel.h"

#define KEYS 4

static const char *const keys[KEYS] = {"heddle", "weft", "shuttle", "selvedge"};

static size_t text_size;
static char *text;
static uint32_t key_hashes[KEYS];

/* Not inlined, as the library that does this in a real program would not be. */
__attribute__((noinline)) static uint32_t hash_word(const char *word, size_t length)
{
	uint32_t hash = (uint32_t)length;

	for (size_t i = 0; i < length; i++) {
		hash = (hash << 5) + (hash >> 2) + (unsigned char)word[i];
		hash ^= hash >> 11;
	}
	return hash;
}

/* Writes a word: in one of 64 cases a key, else one to twelve random letters. Returns its length. */
static size_t make_word(char *to, uint64_t *seed)
{
	uint64_t choice = next_random(seed);
	size_t length = 1 + (choice >> 32) % 12;

	if (choice % 64 == 0) {
		const char *key = keys[(choice >> 8) % KEYS];

		length = strlen(key);
		memcpy(to, key, length);
		return length;
	}
	for (size_t i = 0; i < length; i++)
		to[i] = (char)('a' + next_random(seed) % 26);
	return length;
}

void prepare(void)
{
	uint64_t seed = 4;
	size_t words = 1800000 * kernel_scale;

	if (text != NULL)
		return;
	text = allocate(words, 13);
	for (size_t i = 0; i < words; i++) {
		text_size += make_word(text + text_size, &seed);
		text[text_size++] = '\n';
	}
	for (size_t i = 0; i < KEYS; i++)
		key_hashes[i] = hash_word(keys[i], strlen(keys[i]));
}

uint64_t kernel(void)
{
	const char *end = text + text_size;
	uint64_t found[KEYS] = {0};
	uint64_t hash = 0;

	for (const char *word = text; word < end;) {
		const char *stop = word;
		uint32_t word_hash;

		while (*stop != '\n')
			stop++;
		word_hash = hash_word(word, (size_t)(stop - word));
		for (size_t i = 0; i < KEYS; i++) {
			if (word_hash == key_hashes[i])
				found[i] += (uint64_t)(word - text);
		}
		word = stop + 1;
	}
	for (size_t i = 0; i < KEYS; i++)
		hash = mix(hash, found[i]);
	return hash;
}
