/*
 * Factors a matrix into a lower and an upper triangle in place, block by block. The matrix is diagonally dominant, so
 * no pivots are needed.
 */
#include "kernel.h"

static size_t order, block;
static double *original, *factors;

void prepare(void)
{
	uint64_t seed = 7;

	if (original != NULL)
		return;
	order = 640 * kernel_scale;
	block = 16 * kernel_scale;
	original = allocate(order * order, sizeof(*original));
	factors = allocate(order * order, sizeof(*factors));
	for (size_t i = 0; i < order * order; i++)
		original[i] = next_fraction(&seed) - 0.5;
	for (size_t i = 0; i < order; i++)
		original[i * order + i] += (double)order;
}

/* Subtracts a multiple of one row from another. */
static void subtract_row(double *restrict to, const double *from, double factor, size_t length)
{
	for (size_t i = 0; i < length; i++)
		to[i] -= factor * from[i];
}

/* Factors the block at the diagonal. */
static void factor_diagonal(double *diagonal, size_t n, size_t size)
{
	for (size_t k = 0; k < size; k++) {
		for (size_t i = k + 1; i < size; i++) {
			double factor = diagonal[i * n + k] /= diagonal[k * n + k];

			subtract_row(&diagonal[i * n + k + 1], &diagonal[k * n + k + 1], factor, size - k - 1);
		}
	}
}

/* Solves a block below the diagonal, of the lower triangle. */
static void solve_below(double *target, const double *diagonal, size_t n, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		for (size_t k = 0; k < size; k++) {
			double factor = target[i * n + k] /= diagonal[k * n + k];

			subtract_row(&target[i * n + k + 1], &diagonal[k * n + k + 1], factor, size - k - 1);
		}
	}
}

/* Solves a block on the right of the diagonal, of the upper triangle. */
static void solve_right(double *target, const double *diagonal, size_t n, size_t size)
{
	for (size_t k = 0; k < size; k++) {
		for (size_t i = k + 1; i < size; i++)
			subtract_row(&target[i * n], &target[k * n], diagonal[i * n + k], size);
	}
}

/* Takes the product of a block below and a block on the right from the block where their row and column meet. */
static void update(double *target, const double *below, const double *right, size_t n, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		for (size_t k = 0; k < size; k++)
			subtract_row(&target[i * n], &right[k * n], below[i * n + k], size);
	}
}

uint64_t kernel(void)
{
	size_t n = order, size = block;
	double *m = factors;

	memcpy(m, original, n * n * sizeof(*m));
	for (size_t k = 0; k < n; k += size) {
		factor_diagonal(&m[k * n + k], n, size);
		for (size_t i = k + size; i < n; i += size) {
			solve_below(&m[i * n + k], &m[k * n + k], n, size);
			solve_right(&m[k * n + i], &m[k * n + k], n, size);
		}
		for (size_t i = k + size; i < n; i += size) {
			for (size_t j = k + size; j < n; j += size)
				update(&m[i * n + j], &m[i * n + k], &m[k * n + j], n, size);
		}
	}
	return checksum(m, n * n);
}
