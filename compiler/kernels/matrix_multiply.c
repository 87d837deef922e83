/* Multiplies two square matrices of doubles. The rows are walked in memory order, so the inner loop vectorises. */
#include "kernel.h"

static size_t order;
static double *left, *right, *product;

void prepare(void)
{
	uint64_t seed = 1;

	if (left != NULL)
		return;
	order = 512 * kernel_scale;
	left = allocate(order * order, sizeof(*left));
	right = allocate(order * order, sizeof(*right));
	product = allocate(order * order, sizeof(*product));
	for (size_t i = 0; i < order * order; i++) {
		left[i] = next_fraction(&seed) - 0.5;
		right[i] = next_fraction(&seed) - 0.5;
	}
}

static void multiply(size_t n, const double *a, const double *b, double *restrict c)
{
	memset(c, 0, n * n * sizeof(*c));
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < n; k++) {
			double factor = a[i * n + k];

			for (size_t j = 0; j < n; j++)
				c[i * n + j] += factor * b[k * n + j];
		}
	}
}

uint64_t kernel(void)
{
	multiply(order, left, right, product);
	return checksum(product, order * order);
}
