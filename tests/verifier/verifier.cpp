// The verdict of flatbuffers::Verifier, as Arm NN's deserializer asks for it, over many files.
//
// Standard input: per file its length (4 bytes, little-endian) and its bytes. Standard output: with the
// argument --tables per file a line with the number of tables that the Verifier counts, 0 where it refuses
// the file; without it per file
//   'a'  accepted
//   'l'  refused for its number of tables alone: more than 1,000,000, and no more than MOST
//   'm'  more than MOST tables: not looked at to the end
//   'r'  refused
// Each file is verified in a block of exactly its size, so that AddressSanitizer sees a read beyond it.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "schema_generated.h"

namespace {

constexpr flatbuffers::uoffset_t kDepth = 64;
constexpr flatbuffers::uoffset_t kTables = 1000000;
constexpr flatbuffers::uoffset_t kMost = 20000000;

bool Accepted(const uint8_t *data, size_t size, flatbuffers::uoffset_t tables) {
  flatbuffers::Verifier verifier(data, size, kDepth, tables);
  return verifier.VerifyBuffer<armnnSerializer::SerializedGraph>(nullptr);
}

// Whether the tables of a refused file are too many to be counted: the Verifier refuses at the limit
// and says no more, so a second one with a higher limit tells.
char Verdict(const uint8_t *data, size_t size) {
  if (Accepted(data, size, kTables)) return 'a';
  if (Accepted(data, size, kMost)) return 'l';
  // A file that is damaged is refused at any limit; one with too many tables is refused at one table less
  // than it has, which takes as long as the limit allows: look at the count itself.
  flatbuffers::Verifier verifier(data, size, kDepth, kMost);
  verifier.VerifyBuffer<armnnSerializer::SerializedGraph>(nullptr);
  // EndTable is not called where a check failed, so a Verifier at its limit refuses the next table at once.
  return verifier.VerifyComplexity() ? 'r' : 'm';
}

// The number of tables as the Verifier counts them: the lowest limit at which it accepts.
flatbuffers::uoffset_t Tables(const uint8_t *data, size_t size) {
  flatbuffers::uoffset_t low = 0, high = kMost;
  if (!Accepted(data, size, high)) return 0;
  while (high - low > 1) {
    const flatbuffers::uoffset_t middle = low + (high - low) / 2;
    (Accepted(data, size, middle) ? high : low) = middle;
  }
  return high;
}

bool Read(void *into, size_t size) { return std::fread(into, 1, size, stdin) == size; }

}  // namespace

int main(int argc, char **argv) {
  const bool count = argc == 2 && std::strcmp(argv[1], "--tables") == 0;
  uint8_t prefix[4];
  while (Read(prefix, sizeof prefix)) {
    const size_t size = prefix[0] | prefix[1] << 8 | prefix[2] << 16 | static_cast<size_t>(prefix[3]) << 24;
    // The file begins at an address that is a multiple of 16, as one that malloc gives.
    std::unique_ptr<uint8_t[]> data(new uint8_t[size]);
    if (!Read(data.get(), size)) return 1;
    if (count) {
      std::printf("%u\n", static_cast<unsigned>(Tables(data.get(), size)));
    } else {
      std::putchar(Verdict(data.get(), size));
    }
  }
  return std::feof(stdin) && !std::ferror(stdin) ? 0 : 1;
}
