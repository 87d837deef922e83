// What C++ keeps while a thread is preempted at a probe: exceptions on their way through frames, those that are caught
// and not yet gone, destructors that run meanwhile, variables that are made on first use, and the library's own code in
// loops and callbacks.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "jobs.h"

namespace {

// A loop of which no compiler knows the count.
__attribute__((noinline)) uint64_t collatz(uint64_t n)
{
	uint64_t steps = 0;

	for (; n > 1; steps++)
		n = n % 2 == 0 ? n / 2 : 3 * n + 1;
	return steps;
}

// Some thousand cycles.
__attribute__((noinline)) uint64_t compute(uint64_t seed)
{
	uint64_t hash = seed;

	for (uint64_t i = 1; i < 20; i++)
		hash = mix(hash, collatz(seed * 20 + i));
	return hash;
}

struct Failure : std::runtime_error {
	explicit Failure(uint64_t code) : std::runtime_error("failure " + std::to_string(code)), code(code)
	{
	}

	uint64_t code;
};

// Computes when it goes, in the usual way or while an exception passes.
class Guard {
public:
	Guard(uint64_t &trace, uint64_t number) : trace(trace), number(number)
	{
	}

	~Guard()
	{
		trace = mix(trace, compute(number) + (uint64_t)std::uncaught_exceptions());
	}

	Guard(const Guard &) = delete;
	Guard &operator=(const Guard &) = delete;

private:
	uint64_t &trace;
	uint64_t number;
};

__attribute__((noinline)) uint64_t fail(uint64_t &trace, unsigned depth, uint64_t code)
{
	Guard guard(trace, depth);

	trace = mix(trace, compute(depth));
	if (depth == 0)
		throw Failure(code);
	return fail(trace, depth - 1, code) + 1;
}

uint64_t through_frames(uint64_t seed)
{
	uint64_t trace = seed;

	for (unsigned depth = 0; depth < 12; depth++) {
		try {
			fail(trace, depth, seed + depth);
		} catch (const Failure &failure) {
			trace = mix(trace, failure.code + compute(failure.code));
			trace = mix(trace, std::string(failure.what()).size());
		}
	}
	return trace;
}

// Exceptions within the handlers of others, and in destructors while another is on its way.
uint64_t nested(uint64_t seed)
{
	struct Inner {
		explicit Inner(uint64_t &trace) : trace(trace)
		{
		}

		~Inner()
		{
			try {
				fail(trace, 2, 5);
			} catch (const std::exception &) {
				trace = mix(trace, compute(6));
			}
		}

		uint64_t &trace;
	};
	uint64_t trace = seed;

	for (uint64_t i = 0; i < 6; i++) {
		try {
			try {
				Inner inner(trace);
				fail(trace, 3, i);
			} catch (const Failure &failure) {
				trace = mix(trace, compute(failure.code));
				try {
					fail(trace, 2, i + 10);
				} catch (...) {
					std::throw_with_nested(std::logic_error("outer"));
				}
			}
		} catch (const std::logic_error &outer) {
			trace = mix(trace, compute(i));
			try {
				std::rethrow_if_nested(outer);
			} catch (const Failure &failure) {
				trace = mix(trace, failure.code);
			}
		}
	}
	return mix(trace, (uint64_t)std::uncaught_exceptions());
}

// Exceptions that are kept, and thrown again later.
uint64_t kept(uint64_t seed)
{
	std::vector<std::exception_ptr> failures;
	uint64_t trace = seed;

	for (uint64_t i = 0; i < 10; i++) {
		try {
			fail(trace, (unsigned)i % 4, i + seed);
		} catch (...) {
			failures.push_back(std::current_exception());
			trace = mix(trace, compute(i));
		}
	}
	for (const std::exception_ptr &failure : failures) {
		try {
			std::rethrow_exception(failure);
		} catch (const Failure &again) {
			trace = mix(trace, compute(again.code));
		}
	}
	return trace;
}

// The library calls back, and what is thrown passes through it.
uint64_t through_the_library(uint64_t seed)
{
	std::vector<uint64_t> numbers(300);
	uint64_t hash = 0, state = seed;

	for (uint64_t &number : numbers)
		number = next_random(&state) % 1000;
	for (uint64_t limit : {2000u, 500u, 990u}) {
		try {
			std::function<bool(uint64_t, uint64_t)> less = [&](uint64_t a, uint64_t b) {
				if (a > limit)
					throw Failure(a);
				return collatz(a + 1) == 1000 || a < b;
			};
			std::sort(numbers.begin(), numbers.end(), less);
		} catch (const Failure &) {
			hash = mix(hash, limit);
		}
		std::sort(numbers.begin(), numbers.end());
		hash = std::accumulate(numbers.begin(), numbers.end(), hash, mix);
	}
	return hash;
}

uint64_t containers(uint64_t seed)
{
	std::map<std::string, uint64_t> sorted;
	std::unordered_map<uint64_t, std::unique_ptr<std::string>> hashed;
	uint64_t hash = 0, state = seed;

	for (uint64_t i = 0; i < 300; i++) {
		uint64_t key = next_random(&state) % 200;

		sorted[std::to_string(key) + "-a-key-that-is-not-short"] += i;
		hashed[key] = std::make_unique<std::string>(20 + key % 20, 'h');
		if (i % 3 == 0)
			hashed.erase(key / 2);
	}
	for (const auto &[key, value] : sorted)
		hash = mix(mix(hash, value), key.size());
	for (uint64_t key = 0; key < 200; key++) {
		auto found = hashed.find(key);

		hash = mix(hash, found == hashed.end() ? 0 : found->second->size());
	}
	return hash;
}

uint64_t text(uint64_t seed)
{
	std::ostringstream out;
	uint64_t hash = 0, number;
	std::string word;

	for (uint64_t i = 0; i < 100; i++)
		out << "word" << i << ' ' << compute(seed + i) % 1000 << ' ';
	for (std::istringstream in(out.str()); in >> word >> number;)
		hash = mix(mix(hash, number), word.size());
	return hash;
}

// The library's recursion in templates that are compiled here.
uint64_t expressions(uint64_t seed)
{
	std::regex pattern("(a|b)*c([0-9]+)(x?)");
	std::string letters = "abcab";
	uint64_t hash = 0;
	std::smatch match;

	for (uint64_t i = 0; i < 15; i++) {
		std::string subject = letters + "ab" + "c" + std::to_string(seed * 100 + i) + (i % 2 ? "x" : "");

		if (std::regex_search(subject, match, pattern))
			hash = mix(mix(hash, (uint64_t)match.position(2)), match.str(2).size() + match.str(3).size());
	}
	return hash;
}

// Made by the thread that comes first, which is preempted meanwhile; the others wait.
uint64_t on_first_use(uint64_t seed)
{
	static const std::vector<uint64_t> table = [] {
		std::vector<uint64_t> made;

		for (uint64_t i = 0; i < 400; i++)
			made.push_back(compute(i));
		return made;
	}();
	static std::once_flag once;
	static std::array<uint64_t, 50> filled;

	std::call_once(once, [] {
		for (size_t i = 0; i < filled.size(); i++)
			filled[i] = compute(i);
	});
	return mix(table[seed * 7], filled[seed]);
}

struct Owned {
	explicit Owned(uint64_t seed) : value(compute(seed))
	{
	}

	~Owned()
	{
		destroyed += compute(3) != 0;
	}

	uint64_t value;
	static std::atomic<uint64_t> destroyed;
};

std::atomic<uint64_t> Owned::destroyed;

// Made in each thread on first use, and destroyed at its end.
uint64_t thread_locals(uint64_t seed)
{
	static thread_local Owned owned(11);

	return mix(owned.value, compute(seed));
}

struct Shape {
	virtual ~Shape() = default;

	virtual uint64_t area(uint64_t) const = 0;
};

struct Square : Shape {
	uint64_t area(uint64_t side) const override
	{
		return side * side;
	}
};

struct Odd : Shape {
	uint64_t area(uint64_t side) const override
	{
		if (side % 11 == 0)
			throw Failure(side);
		return collatz(side + 1);
	}
};

uint64_t virtual_calls(uint64_t seed)
{
	std::vector<std::shared_ptr<Shape>> shapes;
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 200; i++) {
		if (i % 3 == seed % 3)
			shapes.push_back(std::make_shared<Square>());
		else
			shapes.push_back(std::make_shared<Odd>());
	}
	for (uint64_t i = 0; i < shapes.size(); i++) {
		try {
			hash = mix(hash, shapes[i]->area(i));
		} catch (const Failure &failure) {
			hash = mix(hash, failure.code + (dynamic_cast<Odd *>(shapes[i].get()) != nullptr));
		}
	}
	return hash;
}

uint64_t random_numbers(uint64_t seed)
{
	std::mt19937_64 engine(seed);
	std::normal_distribution<double> normal;
	uint64_t hash = 0;

	for (int i = 0; i < 500; i++)
		hash = mix_double(mix(hash, engine()), normal(engine));
	return hash;
}

} // namespace

int main()
{
	static const struct job jobs[] = {
		{"through_frames", through_frames},
		{"nested", nested},
		{"kept", kept},
		{"through_the_library", through_the_library},
		{"containers", containers},
		{"text", text},
		{"expressions", expressions},
		{"thread_locals", thread_locals},
		{"virtual_calls", virtual_calls},
		{"random_numbers", random_numbers},
	};
	int status;

	// The first thread must not be the one that makes them.
	static struct {
		pthread_t id;
		uint64_t got;
	} users[THREADS];
	for (auto &user : users) {
		auto use = [](void *got) -> void * {
			*static_cast<uint64_t *>(got) = on_first_use(2);
			return nullptr;
		};
		if (pthread_create(&user.id, nullptr, use, &user.got) != 0)
			return 1;
	}
	for (auto &user : users)
		pthread_join(user.id, nullptr);
	for (auto &user : users) {
		if (user.got != on_first_use(2)) {
			fputs("on_first_use differs\n", stderr);
			return 1;
		}
	}

	status = run_jobs(jobs, sizeof(jobs) / sizeof(*jobs), 60);
	if (Owned::destroyed != THREADS) {
		fprintf(stderr, "%d thread-local variables were destroyed\n", (int)Owned::destroyed);
		return 1;
	}
	return status;
}
