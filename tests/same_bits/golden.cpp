// The hashes against the reference, which no code of the library is part of. `golden FILE --write` makes the file anew.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "golden.hpp"
#include "support/reference.hpp"

int main(int argc, char** argv) {
  using namespace peerless::test;
  if (argc < 2) return 2;
  std::string text;
  for (int const world : golden_worlds) {
    for (dtype const type : golden_types) {
      std::size_t const bytes = golden_elements * peerless::size_bytes(type);
      std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(world), std::vector<std::byte>(bytes));
      std::vector<const std::byte*> pointers;
      for (int rank = 0; rank < world; ++rank) {
        golden_input(type, rank, inputs[static_cast<std::size_t>(rank)]);
        pointers.push_back(inputs[static_cast<std::size_t>(rank)].data());
      }
      for (reduce_op const operation : golden_ops) {
        std::vector<std::byte> result(bytes);
        reference_reduce(type, operation, pointers.data(), world, golden_elements, result.data());
        char line[80];
        std::snprintf(line, sizeof line, "%d %s %s %016llx\n", world, std::string(peerless::name_of(type)).c_str(),
                      std::string(peerless::name_of(operation)).c_str(),
                      static_cast<unsigned long long>(hash_of(result)));
        text += line;
      }
    }
  }
  if (argc > 2 && std::strcmp(argv[2], "--write") == 0) {
    std::FILE* file = std::fopen(argv[1], "w");
    if (file == nullptr) return 2;
    std::fputs(text.c_str(), file);
    return std::fclose(file);
  }
  std::ifstream file(argv[1]);
  std::string const stored((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::printf("%s\n", stored == text ? "every hash is the reference's" : "FAILED: the file differs from the reference");
  return stored == text ? 0 : 1;
}
