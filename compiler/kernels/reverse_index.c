/*
 * Builds a reverse index: finds the links in pages of markup and notes for each target which pages link to it.
 *
 * The index is a hash table with chains. Some functions are not inlined, as they would not be if they came from other
 * translation units; a probe at their entry is part of what is measured.
 */
#include "kernel.h"

#define BUCKETS 4096

struct reference {
	struct reference *next;
	uint32_t page;
};

struct target {
	struct target *next;
	struct reference *references;
	size_t length;
	const char *name;
};

static size_t page_count;
static char **pages;

/* Writes a link and returns its length. Some targets are much more frequent than others, as in real pages. */
static size_t make_link(char *to, size_t size, uint64_t *seed)
{
	uint64_t number = next_random(seed) % 8192;

	number = number * number / 8192;
	return (size_t)snprintf(to, size, "<a href=\"http://host%d.example/path/%d.html\">here</a> ",
				(int)(number % 61), (int)number);
}

void prepare(void)
{
	static const char *const filler[] = {"<p>warp ", "threads ", "</p>", "<b>bold</b> ", "of the loom ", "<br/>"};
	const size_t page_size = 16384;
	uint64_t seed = 8;

	if (pages != NULL)
		return;
	page_count = 1000 * kernel_scale;
	pages = allocate(page_count, sizeof(*pages));
	for (size_t i = 0; i < page_count; i++) {
		size_t used = 0;

		pages[i] = allocate(page_size, 1);
		while (page_size - used > 128) {
			if (next_random(&seed) % 8 == 0) {
				used += make_link(pages[i] + used, page_size - used, &seed);
			} else {
				const char *words = filler[next_random(&seed) % (sizeof(filler) / sizeof(*filler))];

				used += (size_t)snprintf(pages[i] + used, page_size - used, "%s", words);
			}
		}
	}
}

__attribute__((noinline)) static uint32_t hash_name(const char *name, size_t length)
{
	uint32_t hash = 0;

	for (size_t i = 0; i < length; i++)
		hash = (hash + (unsigned char)name[i]) * 0x2c9277b5;
	return hash ^ (hash >> 15);
}

/* Returns the link's target and its length, or NULL if the text has no further link. */
__attribute__((noinline)) static const char *next_link(const char *text, size_t *length)
{
	static const char start[] = "<a href=\"";

	for (; *text != '\0'; text++) {
		size_t matched = 0;

		while (start[matched] != '\0' && text[matched] == start[matched])
			matched++;
		if (start[matched] == '\0') {
			const char *name = text + matched;
			const char *end = name;

			while (*end != '\0' && *end != '"')
				end++;
			*length = (size_t)(end - name);
			return name;
		}
	}
	return NULL;
}

/* Returns the target of that name. Adds it if there is none. */
__attribute__((noinline)) static struct target *find_target(struct target **table, const char *name, size_t length)
{
	struct target **place = &table[hash_name(name, length) % BUCKETS];

	for (; *place != NULL; place = &(*place)->next) {
		if ((*place)->length == length && memcmp((*place)->name, name, length) == 0)
			return *place;
	}
	*place = allocate(1, sizeof(**place));
	(*place)->name = name;
	(*place)->length = length;
	return *place;
}

__attribute__((noinline)) static void add_reference(struct target *target, uint32_t page)
{
	struct reference *reference = allocate(1, sizeof(*reference));

	reference->page = page;
	reference->next = target->references;
	target->references = reference;
}

/* Returns the hash of a target and what links to it, and frees both. */
static uint64_t take_target(struct target *target)
{
	struct reference *reference = target->references;
	uint64_t hash = hash_name(target->name, target->length);

	while (reference != NULL) {
		struct reference *next = reference->next;

		hash = mix(hash, reference->page);
		free(reference);
		reference = next;
	}
	free(target);
	return hash;
}

uint64_t kernel(void)
{
	struct target **table = allocate(BUCKETS, sizeof(*table));
	uint64_t hash = 0;

	for (size_t i = 0; i < page_count; i++) {
		size_t length;
		const char *link = next_link(pages[i], &length);

		while (link != NULL) {
			add_reference(find_target(table, link, length), (uint32_t)i);
			link = next_link(link + length, &length);
		}
	}
	for (size_t i = 0; i < BUCKETS; i++) {
		struct target *target = table[i];

		while (target != NULL) {
			struct target *next = target->next;

			hash = mix(hash, take_target(target));
			target = next;
		}
	}
	free(table);
	return hash;
}
