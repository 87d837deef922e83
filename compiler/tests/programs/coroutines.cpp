// Coroutines: functions that the compiler splits into parts, whose frames live on the heap and whose loops go on in
// other calls than they began in.
#include <coroutine>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hash.h"

namespace {

// A sequence that is computed as it is asked for.
class Generator {
public:
	struct promise_type {
		Generator get_return_object()
		{
			return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
		}

		std::suspend_always initial_suspend() noexcept
		{
			return {};
		}

		std::suspend_always final_suspend() noexcept
		{
			return {};
		}

		std::suspend_always yield_value(uint64_t next) noexcept
		{
			value = next;
			return {};
		}

		void return_void() noexcept
		{
		}

		void unhandled_exception()
		{
			failure = std::current_exception();
		}

		uint64_t value = 0;
		std::exception_ptr failure;
	};

	explicit Generator(std::coroutine_handle<promise_type> handle) : handle(handle)
	{
	}

	Generator(Generator &&from) noexcept : handle(std::exchange(from.handle, nullptr))
	{
	}

	Generator &operator=(Generator &&) = delete;

	~Generator()
	{
		if (handle)
			handle.destroy();
	}

	// Goes on to the next value; false if there is none.
	bool next()
	{
		handle.resume();
		if (handle.promise().failure)
			std::rethrow_exception(std::exchange(handle.promise().failure, nullptr));
		return !handle.done();
	}

	uint64_t value() const
	{
		return handle.promise().value;
	}

private:
	std::coroutine_handle<promise_type> handle;
};

Generator count(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		co_yield i;
}

Generator fibonacci()
{
	uint64_t a = 0, b = 1;

	for (;;) {
		co_yield a;
		a = std::exchange(b, a + b);
	}
}

// Each prime is a filter over the generator before it.
Generator without_multiples(Generator from, uint64_t prime)
{
	while (from.next()) {
		if (from.value() % prime != 0)
			co_yield from.value();
	}
}

Generator fails_at(uint64_t limit)
{
	for (uint64_t i = 0;; i++) {
		if (i == limit)
			throw std::runtime_error("the end");
		co_yield i * i;
	}
}

// Recursion by coroutines: the permutations' hashes, in their order.
Generator permutations(std::vector<uint64_t> &items, size_t fixed)
{
	if (fixed == items.size()) {
		uint64_t hash = 0;

		for (uint64_t item : items)
			hash = mix(hash, item);
		co_yield hash;
		co_return;
	}
	for (size_t i = fixed; i < items.size(); i++) {
		std::swap(items[fixed], items[i]);
		for (Generator rest = permutations(items, fixed + 1); rest.next();)
			co_yield rest.value();
		std::swap(items[fixed], items[i]);
	}
}

uint64_t generators()
{
	uint64_t hash = 0;

	for (Generator numbers = count(7, 1000); numbers.next();)
		hash = mix(hash, numbers.value());
	for (Generator none = count(9, 9); none.next();)
		hash = mix(hash, 1);

	// More numbers than fit, so that the sums wrap.
	Generator numbers = fibonacci();

	for (size_t i = 0; i < 200 && numbers.next(); i++)
		hash = mix(hash, numbers.value());
	return hash;
}

uint64_t sieve()
{
	Generator rest = count(2, UINT64_MAX);
	uint64_t hash = 0;

	for (size_t i = 0; i < 60 && rest.next(); i++) {
		uint64_t prime = rest.value();
		Generator filtered = without_multiples(std::move(rest), prime);

		hash = mix(hash, prime);
		std::destroy_at(&rest);
		std::construct_at(&rest, std::move(filtered));
	}
	return hash;
}

uint64_t failures()
{
	uint64_t hash = 0;

	for (uint64_t limit = 0; limit < 100; limit++) {
		Generator numbers = fails_at(limit);

		try {
			while (numbers.next())
				hash = mix(hash, numbers.value());
		} catch (const std::runtime_error &) {
			hash = mix(hash, ~limit);
		}
	}
	return hash;
}

uint64_t recursion()
{
	std::vector<uint64_t> items = {1, 2, 3, 4, 5, 6};
	uint64_t hash = 0;

	for (Generator all = permutations(items, 0); all.next();)
		hash = mix(hash, all.value());
	return hash;
}

// The tasks that wait for their turn.
std::deque<std::coroutine_handle<>> ready;

struct Turn {
	bool await_ready() const noexcept
	{
		return false;
	}

	void await_suspend(std::coroutine_handle<> handle) const
	{
		ready.push_back(handle);
	}

	void await_resume() const noexcept
	{
	}
};

// A computation that another can wait for. At its end it goes on in the one that waits, without a frame on the stack.
class Task {
public:
	struct promise_type {
		struct Last {
			bool await_ready() const noexcept
			{
				return false;
			}

			std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> handle) const noexcept
			{
				std::coroutine_handle<> waiting = handle.promise().waiting;

				return waiting ? waiting : std::noop_coroutine();
			}

			void await_resume() const noexcept
			{
			}
		};

		Task get_return_object()
		{
			return Task(std::coroutine_handle<promise_type>::from_promise(*this));
		}

		std::suspend_always initial_suspend() noexcept
		{
			return {};
		}

		Last final_suspend() noexcept
		{
			return {};
		}

		void return_value(uint64_t result) noexcept
		{
			value = result;
		}

		void unhandled_exception()
		{
			failure = std::current_exception();
		}

		uint64_t value = 0;
		std::exception_ptr failure;
		std::coroutine_handle<> waiting;
	};

	explicit Task(std::coroutine_handle<promise_type> handle) : handle(handle)
	{
	}

	Task(Task &&from) noexcept : handle(std::exchange(from.handle, nullptr))
	{
	}

	Task &operator=(Task &&) = delete;

	~Task()
	{
		if (handle)
			handle.destroy();
	}

	bool await_ready() const noexcept
	{
		return false;
	}

	std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) const noexcept
	{
		handle.promise().waiting = caller;
		return handle;
	}

	uint64_t await_resume() const
	{
		if (handle.promise().failure)
			std::rethrow_exception(handle.promise().failure);
		return handle.promise().value;
	}

	// Makes a task that nobody waits for ready to run.
	void start() const
	{
		ready.push_back(handle);
	}

	uint64_t result() const
	{
		return await_resume();
	}

private:
	std::coroutine_handle<promise_type> handle;
};

// What the tasks did, in the order of their turns.
uint64_t trace;

Task add_up(uint64_t from, uint64_t to)
{
	uint64_t sum = 0;
	double product = 1;

	for (uint64_t i = from; i < to; i++) {
		sum = mix(sum, i);
		product *= 1.0 + static_cast<double>(i) / 1024;
		if (i % 16 == 3)
			co_await Turn();
		trace = mix(trace, sum);
	}
	co_return mix_double(sum, product);
}

Task split(unsigned depth, uint64_t number)
{
	if (depth == 0) {
		if (number % 11 == 4)
			throw std::runtime_error("unlucky");
		co_return co_await add_up(number, number + number % 40);
	}

	uint64_t hash = 0;

	for (uint64_t child = 0; child < 3; child++) {
		try {
			hash = mix(hash, co_await split(depth - 1, number * 3 + child));
		} catch (const std::runtime_error &) {
			hash = mix(hash, depth);
		}
	}
	co_return hash;
}

uint64_t tasks()
{
	std::vector<Task> all;
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 10; i++) {
		all.push_back(split(4, i));
		all.back().start();
	}
	while (!ready.empty()) {
		std::coroutine_handle<> next = ready.front();

		ready.pop_front();
		next.resume();
	}
	for (const Task &task : all)
		hash = mix(hash, task.result());
	return mix(hash, trace);
}

} // namespace

int main()
{
	print_hash("generators", generators());
	print_hash("sieve", sieve());
	print_hash("failures", failures());
	print_hash("recursion", recursion());
	print_hash("tasks", tasks());
	return 0;
}
