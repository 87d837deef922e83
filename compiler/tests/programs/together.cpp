// Runs the other programs and the kernels in one process, each in a thread. They are compiled with other names for what
// they define (scripts/lib/probes-preempted). Their lines, in any order, are those of the programs themselves.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <pthread.h>

int exceptions_main();
int coroutines_main();

extern "C" {
int loops_main(void);
int lists_main(void);
int vectors_main(void);
int mixed_main(void);

extern volatile size_t kernel_scale;
volatile size_t kernel_scale = 1;

#define KERNEL(name)         \
	void name##_prepare(); \
	uint64_t name##_kernel();

KERNEL(blackscholes)
KERNEL(fft)
KERNEL(fib)
KERNEL(histogram)
KERNEL(linear_regression)
KERNEL(lu)
KERNEL(matrix_multiply)
KERNEL(pca)
KERNEL(reverse_index)
KERNEL(string_match)
}

namespace {

template <void (*prepare)(), uint64_t (*kernel)()>
int run_kernel()
{
	prepare();
	printf("%016" PRIx64 "\n", kernel());
	return 0;
}

#define RUN(name) run_kernel<name##_prepare, name##_kernel>

int (*const programs[])() = {
	loops_main,
	lists_main,
	vectors_main,
	mixed_main,
	exceptions_main,
	coroutines_main,
	RUN(blackscholes),
	RUN(fft),
	RUN(fib),
	RUN(histogram),
	RUN(linear_regression),
	RUN(lu),
	RUN(matrix_multiply),
	RUN(pca),
	RUN(reverse_index),
	RUN(string_match),
};

void *run(void *program)
{
	(*static_cast<int (*const *)()>(program))();
	return nullptr;
}

} // namespace

int main()
{
	constexpr size_t count = sizeof(programs) / sizeof(*programs);
	pthread_t threads[count];

	for (size_t i = 0; i < count; i++) {
		if (pthread_create(&threads[i], nullptr, run, const_cast<int (**)()>(&programs[i])) != 0)
			return 1;
	}
	for (pthread_t thread : threads)
		pthread_join(thread, nullptr);
	return 0;
}
