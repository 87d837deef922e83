/* The first half of a principal component analysis: the mean of each row and the covariance of each pair of rows. */
#include "kernel.h"

static size_t rows, columns;
static int32_t *matrix, *means;

void prepare(void)
{
	uint64_t seed = 2;

	if (matrix != NULL)
		return;
	rows = 280 * kernel_scale;
	columns = 1000 * kernel_scale;
	matrix = allocate(rows * columns, sizeof(*matrix));
	means = allocate(rows, sizeof(*means));
	for (size_t i = 0; i < rows * columns; i++)
		matrix[i] = (int32_t)(next_random(&seed) % 1000);
}

static void find_means(size_t height, size_t width, const int32_t *values, int32_t *restrict result)
{
	for (size_t i = 0; i < height; i++) {
		int64_t sum = 0;

		for (size_t j = 0; j < width; j++)
			sum += values[i * width + j];
		result[i] = (int32_t)(sum / (int64_t)width);
	}
}

static int64_t covariance(size_t width, const int32_t *a, int32_t mean_a, const int32_t *b, int32_t mean_b)
{
	int64_t sum = 0;

	for (size_t i = 0; i < width; i++)
		sum += (int64_t)(a[i] - mean_a) * (b[i] - mean_b);
	return sum / (int64_t)(width - 1);
}

uint64_t kernel(void)
{
	size_t height = rows, width = columns;
	uint64_t hash = 0;

	find_means(height, width, matrix, means);
	for (size_t i = 0; i < height; i++) {
		for (size_t j = i; j < height; j++) {
			int64_t value = covariance(width, &matrix[i * width], means[i], &matrix[j * width], means[j]);

			hash = mix(hash, (uint64_t)value);
		}
	}
	return hash;
}
