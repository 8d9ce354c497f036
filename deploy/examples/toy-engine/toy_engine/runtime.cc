// The runtime module of the toy engine: it is made from a program in text, and runs it.
//
// A program has a line for each step: `symbol NAME`, `inputs COUNT`, `mul ID LEFT RIGHT ELEMENTS` and `output ID`.

#include <dlpack/dlpack.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ffi = tvm::ffi;

struct Product {
  int id, left, right, elements;
};

float* Data(const ffi::AnyView& argument) {
  DLTensor* tensor = argument.cast<DLTensor*>();
  return reinterpret_cast<float*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
}

class ToyModule : public ffi::ModuleObj {
 public:
  explicit ToyModule(std::string text) : text_(std::move(text)) {
    std::istringstream words(text_);
    for (std::string word; words >> word;) {
      Product step{};
      if (word == "symbol") {
        words >> symbol_;
      } else if (word == "inputs") {
        words >> inputs_;
      } else if (word == "output") {
        words >> step.id;
        outputs_.push_back(step.id);
      } else if (word == "mul") {
        words >> step.id >> step.left >> step.right >> step.elements;
        steps_.push_back(step);
      } else {
        TVM_FFI_THROW(ValueError) << "the toy engine does not know " << word;
      }
    }
  }

  // The name by which the artifact's library finds the function that makes the module again.
  const char* kind() const final { return "toy_engine"; }
  int GetPropertyMask() const final { return ffi::Module::kBinarySerializable | ffi::Module::kRunnable; }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(text_); }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name != symbol_) return std::nullopt;
    ffi::Module self = ffi::GetRef<ffi::Module>(this);  // lives as long as the function
    return ffi::Function::FromPacked(
        [self, this](const ffi::AnyView* args, int32_t count, ffi::Any*) { Run(args, count); });
  }

 private:
  // All that changes is local: several threads may run the function at once.
  void Run(const ffi::AnyView* args, int32_t count) const {
    if (count != inputs_ + static_cast<int>(outputs_.size())) {
      TVM_FFI_THROW(TypeError) << symbol_ << " takes " << inputs_ + outputs_.size() << " tensors, not " << count;
    }
    std::map<int, const float*> values;
    std::map<int, std::vector<float>> rooms;
    for (int i = 0; i < inputs_; ++i) values[i] = Data(args[i]);
    for (const Product& step : steps_) {
      std::vector<float>& room = rooms[step.id];
      room.resize(step.elements);
      for (int i = 0; i < step.elements; ++i) room[i] = values.at(step.left)[i] * values.at(step.right)[i];
      values[step.id] = room.data();
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::vector<float>& room = rooms.at(outputs_[i]);
      std::memcpy(Data(args[inputs_ + i]), room.data(), room.size() * sizeof(float));
    }
  }

  std::string text_, symbol_;
  int inputs_ = 0;
  std::vector<Product> steps_;
  std::vector<int> outputs_;
};

ffi::Module Make(const std::string& text) { return ffi::Module(ffi::make_object<ToyModule>(text)); }

TVM_FFI_STATIC_INIT_BLOCK() {
  // A process may load several artifacts, each with this code: the newest serves the next one.
  ffi::Function::SetGlobal("toy_engine.create",
                           ffi::Function::FromTyped([](const ffi::String& text) { return Make(std::string(text)); }),
                           /*override=*/true);
  ffi::Function::SetGlobal("ffi.Module.load_from_bytes.toy_engine",
                           ffi::Function::FromTyped([](const ffi::Bytes& bytes) {
                             return Make(std::string(bytes.data(), bytes.size()));
                           }),
                           /*override=*/true);
}

}  // namespace
