/* Counts how often each of the 256 values of each of the three channels occurs in a bitmap. */
#include "kernel.h"

#define CHANNELS 3
#define VALUES 256

static size_t pixels;
static uint8_t *bitmap;

void prepare(void)
{
	uint64_t seed = 3;

	if (bitmap != NULL)
		return;
	pixels = 24000000 * kernel_scale;
	bitmap = allocate(pixels * CHANNELS, 1);
	for (size_t i = 0; i < pixels * CHANNELS; i += sizeof(uint64_t)) {
		uint64_t word = next_random(&seed);

		memcpy(&bitmap[i], &word, sizeof(word));
	}
}

uint64_t kernel(void)
{
	uint32_t counts[CHANNELS][VALUES] = {{0}};
	const uint8_t *end = bitmap + pixels * CHANNELS;
	uint64_t hash = 0;

	for (const uint8_t *pixel = bitmap; pixel < end; pixel += CHANNELS) {
		counts[0][pixel[0]]++;
		counts[1][pixel[1]]++;
		counts[2][pixel[2]]++;
	}
	for (size_t channel = 0; channel < CHANNELS; channel++) {
		for (size_t value = 0; value < VALUES; value++)
			hash = mix(hash, counts[channel][value]);
	}
	return hash;
}
