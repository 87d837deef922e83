/* Sums what a straight line through many points needs, in one long loop without calls. */
#include "kernel.h"

struct point {
	int8_t x, y;
};

static size_t count;
static struct point *points;

void prepare(void)
{
	uint64_t seed = 9;

	if (points != NULL)
		return;
	count = 16000000 * kernel_scale;
	points = allocate(count, sizeof(*points));
	for (size_t i = 0; i < count; i++) {
		uint64_t word = next_random(&seed);

		points[i].x = (int8_t)(word % 200 - 100);
		points[i].y = (int8_t)(points[i].x / 2 + (int8_t)((word >> 32) % 50));
	}
}

uint64_t kernel(void)
{
	const struct point *data = points;
	size_t n = count;
	int64_t sum_x = 0, sum_y = 0, sum_xx = 0, sum_yy = 0, sum_xy = 0;
	uint64_t hash;

	for (size_t i = 0; i < n; i++) {
		sum_x += data[i].x;
		sum_y += data[i].y;
		sum_xx += data[i].x * data[i].x;
		sum_yy += data[i].y * data[i].y;
		sum_xy += data[i].x * data[i].y;
	}
	hash = mix(mix(mix(0, (uint64_t)sum_x), (uint64_t)sum_y), (uint64_t)sum_xx);
	return mix(mix(hash, (uint64_t)sum_yy), (uint64_t)sum_xy);
}
