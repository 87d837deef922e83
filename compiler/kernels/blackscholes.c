/* Prices European options with the Black-Scholes formula. */
#include <math.h>

#include "kernel.h"

struct option {
	double spot, strike, rate, volatility, years;
	int is_put;
};

static size_t count;
static struct option *options;
static double *prices;

void prepare(void)
{
	uint64_t seed = 6;

	if (options != NULL)
		return;
	count = 700000 * kernel_scale;
	options = allocate(count, sizeof(*options));
	prices = allocate(count, sizeof(*prices));
	for (size_t i = 0; i < count; i++) {
		options[i].spot = 20 + 100 * next_fraction(&seed);
		options[i].strike = 20 + 100 * next_fraction(&seed);
		options[i].rate = 0.01 + 0.1 * next_fraction(&seed);
		options[i].volatility = 0.05 + 0.6 * next_fraction(&seed);
		options[i].years = 0.1 + 3 * next_fraction(&seed);
		options[i].is_put = (int)(next_random(&seed) & 1);
	}
}

/* Approximates the normal distribution's cumulative function (Abramowitz and Stegun, 26.2.17). */
static double normal_cdf(double x)
{
	const double inverse_root_of_two_pi = 0.39894228040143267794;
	double distance = fabs(x);
	double k = 1 / (1 + 0.2316419 * distance);
	double sum = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
	double tail = inverse_root_of_two_pi * exp(-0.5 * distance * distance) * sum;

	return x < 0 ? tail : 1 - tail;
}

static double price(const struct option *option)
{
	double spread = option->volatility * sqrt(option->years);
	double drift = (option->rate + 0.5 * option->volatility * option->volatility) * option->years;
	double d1 = (log(option->spot / option->strike) + drift) / spread;
	double d2 = d1 - spread;
	double discounted = option->strike * exp(-option->rate * option->years);

	if (option->is_put)
		return discounted * normal_cdf(-d2) - option->spot * normal_cdf(-d1);
	return option->spot * normal_cdf(d1) - discounted * normal_cdf(d2);
}

uint64_t kernel(void)
{
	size_t n = count;

	for (size_t i = 0; i < n; i++)
		prices[i] = price(&options[i]);
	return checksum(prices, n);
}
