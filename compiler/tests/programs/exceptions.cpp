// Exceptions and the rest of C++ that a pass meets: invokes and landing pads, cleanups, virtual calls, templates, and
// code of the standard library that the program instantiates.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <variant>
#include <vector>

#include "hash.h"

namespace {

// What the destructors and the handlers did, in their order.
uint64_t trace;

void note(uint64_t event)
{
	trace = mix(trace, event);
}

// Notes when it goes, in the usual way or while an exception passes.
class Guard {
public:
	explicit Guard(uint64_t number) : number(number)
	{
		note(number);
	}

	~Guard()
	{
		note(~number);
	}

	Guard(const Guard &) = delete;
	Guard &operator=(const Guard &) = delete;

private:
	uint64_t number;
};

struct Failure : std::runtime_error {
	explicit Failure(uint64_t code) : std::runtime_error("failure"), code(code)
	{
	}

	uint64_t code;
};

struct SevereFailure : Failure {
	using Failure::Failure;
};

__attribute__((noinline)) uint64_t leaf(uint64_t value)
{
	if (value % 13 == 5)
		throw Failure(value);
	if (value % 17 == 6)
		throw SevereFailure(value);
	if (value % 101 == 9)
		throw value;
	return value * 3;
}

__attribute__((noinline)) uint64_t middle(uint64_t from, uint64_t to)
{
	Guard outer(from);
	uint64_t sum = 0;

	for (uint64_t i = from; i < to; i++) {
		Guard inner(i);

		sum += leaf(i);
	}
	return sum;
}

// Catches in one frame what a loop in another throws, and throws some of it again.
__attribute__((noinline)) uint64_t passes_on(uint64_t from, uint64_t to)
{
	uint64_t hash = 0;

	for (uint64_t i = from; i < to; i += 4) {
		try {
			hash = mix(hash, middle(i, i + 4));
		} catch (const SevereFailure &failure) {
			note(failure.code);
			throw;
		} catch (const Failure &failure) {
			hash = mix(hash, failure.code);
		}
	}
	return hash;
}

uint64_t through_frames()
{
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 2000; i++) {
		try {
			hash = mix(hash, passes_on(i, i + i % 23));
		} catch (const std::exception &failure) {
			hash = mix(hash, std::string(failure.what()).size());
		} catch (uint64_t value) {
			hash = mix(hash, value);
		}
	}
	return mix(hash, trace);
}

__attribute__((noinline)) uint64_t descend(unsigned left, unsigned code)
{
	Guard guard(left);

	if (left == 0)
		throw Failure(code);
	try {
		return descend(left - 1, code) + 1;
	} catch (Failure &failure) {
		if (left % 3 == 0)
			throw;
		if (left % 7 == 0)
			throw Failure(failure.code + left);
		if (left % 50 == 1)
			return failure.code;
		failure.code++;
		throw;
	}
}

uint64_t recursive()
{
	uint64_t hash = 0;

	for (unsigned left = 0; left < 120; left++) {
		try {
			hash = mix(hash, descend(left, left * 7));
		} catch (const Failure &failure) {
			hash = mix(hash, failure.code);
		}
	}
	return mix(hash, trace);
}

// A constructor that fails must destroy the members and the elements that are already there.
class Fragile {
public:
	explicit Fragile(unsigned number) : first(number), elements(number % 5)
	{
		for (unsigned i = 0; i < number % 5; i++)
			elements[i] = std::make_unique<Guard>(i);
		if (number % 4 == 3)
			throw std::invalid_argument(std::to_string(number));
	}

private:
	Guard first;
	std::vector<std::unique_ptr<Guard>> elements;
};

uint64_t constructors()
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < 1000; i++) {
		try {
			std::vector<std::unique_ptr<Fragile>> all;

			for (unsigned j = 0; j < 4; j++)
				all.push_back(std::make_unique<Fragile>(i * j));
			hash = mix(hash, all.size());
		} catch (const std::invalid_argument &problem) {
			hash = mix(hash, static_cast<uint64_t>(std::stoi(problem.what())));
		}
	}
	return mix(hash, trace);
}

// Exceptions that are kept as values, and ones that wrap others.
uint64_t nested()
{
	std::vector<std::exception_ptr> kept;
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 300; i++) {
		try {
			try {
				hash = mix(hash, leaf(i));
			} catch (const Failure &) {
				std::throw_with_nested(std::logic_error("while it ran"));
			}
		} catch (...) {
			kept.push_back(std::current_exception());
		}
	}
	for (const auto &exception : kept) {
		try {
			std::rethrow_exception(exception);
		} catch (const std::logic_error &outer) {
			try {
				std::rethrow_if_nested(outer);
			} catch (const Failure &failure) {
				hash = mix(hash, failure.code);
			}
		} catch (uint64_t value) {
			hash = mix(hash, ~value);
		}
	}
	return mix(hash, kept.size());
}

// The library's code calls back, and an exception passes through it.
uint64_t from_callbacks()
{
	uint64_t hash = 0;

	for (unsigned limit = 1; limit < 2000; limit = limit * 2 + 1) {
		std::vector<unsigned> numbers(500);
		unsigned compared = 0;

		std::iota(numbers.begin(), numbers.end(), limit);
		try {
			std::for_each(numbers.begin(), numbers.end(), [&](unsigned number) {
				Guard guard(number);

				if (++compared == limit)
					throw Failure(number);
				hash = mix(hash, number);
			});
		} catch (const Failure &failure) {
			hash = mix(hash, failure.code);
		}
	}
	return mix(hash, trace);
}

uint64_t containers()
{
	uint64_t seed = 1, hash = 0;
	std::vector<std::string> words;
	std::map<std::string, unsigned> counts;
	std::unordered_map<uint64_t, std::string> by_number;

	for (unsigned i = 0; i < 3000; i++) {
		std::string word;

		for (uint64_t random = next_random(&seed); random % 5 != 0; random /= 5)
			word += static_cast<char>('a' + random % 26);
		counts[word.substr(0, 3)]++;
		by_number[next_random(&seed) % 1000] += word;
		words.push_back(std::move(word));
	}
	std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
		return a.size() != b.size() ? a.size() < b.size() : a > b;
	});
	words.erase(std::unique(words.begin(), words.end()), words.end());
	for (const auto &word : words) {
		for (char letter : word)
			hash = mix(hash, static_cast<unsigned char>(letter));
	}
	for (const auto &[prefix, count] : counts)
		hash = mix(mix(hash, prefix.size()), count);
	// The order of an unordered map is the library's own business.
	for (uint64_t key = 0; key < 1000; key++) {
		auto found = by_number.find(key);

		hash = mix(hash, found == by_number.end() ? 0 : found->second.size() + 1);
	}
	return hash;
}

struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;

	virtual uint64_t corners() const
	{
		return 0;
	}
};

struct Circle final : Shape {
	explicit Circle(double radius) : radius(radius)
	{
	}

	double area() const override
	{
		return 3 * radius * radius;
	}

	double radius;
};

struct Rectangle : Shape {
	Rectangle(double width, double height) : width(width), height(height)
	{
	}

	double area() const override
	{
		return width * height;
	}

	uint64_t corners() const override
	{
		return 4;
	}

	double width, height;
};

// A second base, whose calls adjust the object's address first.
struct Named {
	virtual ~Named() = default;
	virtual std::string name() const = 0;
};

struct Square final : Rectangle, Named {
	explicit Square(double side) : Rectangle(side, side)
	{
	}

	std::string name() const override
	{
		return "square " + std::to_string(corners());
	}
};

uint64_t virtual_calls()
{
	std::vector<std::unique_ptr<Shape>> shapes;
	uint64_t hash = 0;

	for (int i = 0; i < 1000; i++) {
		if (i % 3 == 0)
			shapes.push_back(std::make_unique<Circle>(i / 8.0));
		else if (i % 3 == 1)
			shapes.push_back(std::make_unique<Rectangle>(i / 4.0, 2.5));
		else
			shapes.push_back(std::make_unique<Square>(i / 2.0));
	}
	for (const auto &shape : shapes) {
		hash = mix(mix_double(hash, shape->area()), shape->corners());
		if (const auto *named = dynamic_cast<const Named *>(shape.get()))
			hash = mix(hash, named->name().size());
	}
	return hash;
}

uint64_t functions()
{
	std::vector<std::function<uint64_t(uint64_t)>> stages;
	std::function<uint64_t(unsigned)> fibonacci = [&fibonacci](unsigned n) -> uint64_t {
		return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
	};
	uint64_t hash = fibonacci(18);

	for (uint64_t i = 0; i < 20; i++)
		stages.push_back([i, previous = hash](uint64_t value) { return mix(value + previous, i); });
	for (uint64_t i = 0; i < 200; i++) {
		hash = std::accumulate(stages.begin(), stages.end(), hash,
				       [](uint64_t value, const auto &stage) { return stage(value); });
	}
	return hash;
}

template <unsigned N>
struct Power {
	static uint64_t of(uint64_t base)
	{
		if constexpr (N == 0) {
			return 1;
		} else {
			uint64_t half = Power<N / 2>::of(base);

			return half * half * (N % 2 == 0 ? 1 : base);
		}
	}
};

template <typename... Values>
uint64_t mix_all(uint64_t hash, Values... values)
{
	((hash = mix(hash, static_cast<uint64_t>(values))), ...);
	return hash;
}

uint64_t templates()
{
	uint64_t hash = 0;

	for (uint64_t i = 0; i < 500; i++) {
		std::variant<int, std::string> either;

		if (i % 2 == 0)
			either = static_cast<int>(i);
		else
			either = std::string(i % 7, 'x');
		hash = mix_all(hash, Power<13>::of(i), Power<32>::of(i), static_cast<short>(i), i % 3 == 0, 'c');
		hash = std::visit(
			[&](const auto &value) {
				if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int>)
					return mix(hash, static_cast<uint64_t>(value));
				else
					return mix(hash, value.size());
			},
			either);
	}
	return hash;
}

} // namespace

int main()
{
	print_hash("through_frames", through_frames());
	print_hash("recursive", recursive());
	print_hash("constructors", constructors());
	print_hash("nested", nested());
	print_hash("from_callbacks", from_callbacks());
	print_hash("containers", containers());
	print_hash("virtual_calls", virtual_calls());
	print_hash("functions", functions());
	print_hash("templates", templates());
	return 0;
}
