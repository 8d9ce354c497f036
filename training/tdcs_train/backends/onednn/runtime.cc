// Runtime module of the back end `onednn`: runs one region on the primitives of oneDNN.
//
// The module is made from the region's text (see graph_text.py). Its constructor parses the text and makes every
// primitive and buffer once. Functions by name, with the region's symbol S:
//   S          (inputs..., outputs...): runs the region; the tensors are compact float32 on the CPU
//   S__bind    (weights...): takes the weights once, in the layouts that the primitives like best
// It is saved as its text, and loaded by `ffi.Module.load_from_bytes.tdcs_onednn`.

#include <dlpack/dlpack.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tdcs {
namespace {

namespace ffi = tvm::ffi;
using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

struct Node {
  std::string kind;
  int id = 0;
  std::vector<int> inputs;
  Dims shape;
  std::map<std::string, Dims> attributes;
  bool bias = false;
  bool relu = false;

  const Dims& Attribute(const std::string& name) const {
    auto found = attributes.find(name);
    if (found == attributes.end()) {
      TVM_FFI_THROW(ValueError) << "the node " << id << " (" << kind << ") has no attribute " << name;
    }
    return found->second;
  }
};

struct Graph {
  std::string symbol;
  std::vector<Dims> input_shapes;
  std::vector<bool> is_weight;
  std::vector<Node> nodes;
  std::vector<int> outputs;
};

Dims ParseList(const std::string& text) {
  Dims values;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) values.push_back(std::stoll(part));
  return values;
}

bool TakeSuffix(std::string* text, const std::string& suffix) {
  if (text->size() <= suffix.size() || text->compare(text->size() - suffix.size(), suffix.size(), suffix) != 0) {
    return false;
  }
  text->resize(text->size() - suffix.size());
  return true;
}

Node ParseNode(std::string kind, std::istringstream* line, int next_id) {
  Node node;
  node.relu = TakeSuffix(&kind, "_relu");
  node.bias = TakeSuffix(&kind, "_bias");
  node.kind = kind;
  *line >> node.id;
  enum { kNone, kInputs, kShape, kAttributes } part = kNone;
  for (std::string word; *line >> word;) {
    if (word == "inputs:") {
      part = kInputs;
    } else if (word == "shape:") {
      part = kShape;
    } else if (word == "attrs:") {
      part = kAttributes;
    } else if (part == kInputs) {
      node.inputs.push_back(std::stoi(word));
    } else if (part == kShape) {
      node.shape.push_back(std::stoll(word));
    } else if (part == kAttributes) {
      auto equals = word.find('=');
      if (equals == std::string::npos) TVM_FFI_THROW(ValueError) << "not an attribute: " << word;
      node.attributes[word.substr(0, equals)] = ParseList(word.substr(equals + 1));
    } else {
      TVM_FFI_THROW(ValueError) << "unexpected in a node's line: " << word;
    }
  }
  if (node.id != next_id) TVM_FFI_THROW(ValueError) << "the node " << node.id << " is out of order";
  for (int input : node.inputs) {
    if (input < 0 || input >= next_id) TVM_FFI_THROW(ValueError) << "the node " << node.id << " reads " << input;
  }
  return node;
}

Graph ParseGraph(const std::string& text) {
  Graph graph;
  std::istringstream lines(text);
  std::getline(lines, graph.symbol);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    if (!(words >> kind)) continue;
    int next_id = static_cast<int>(graph.input_shapes.size() + graph.nodes.size());
    if (kind == "input" || kind == "weight") {
      int id = -1;
      Dims shape;
      words >> id;
      for (int64_t size; words >> size;) shape.push_back(size);
      if (id != next_id || !graph.nodes.empty()) TVM_FFI_THROW(ValueError) << "an input is out of order: " << line;
      graph.input_shapes.push_back(shape);
      graph.is_weight.push_back(kind == "weight");
    } else if (kind == "output") {
      for (int id; words >> id;) graph.outputs.push_back(id);
    } else {
      graph.nodes.push_back(ParseNode(kind, &words, next_id));
    }
  }
  if (graph.nodes.empty()) TVM_FFI_THROW(ValueError) << "the region " << graph.symbol << " has no nodes";
  if (graph.outputs.empty()) graph.outputs.push_back(graph.nodes.back().id);
  return graph;
}

Desc Plain(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return Desc(shape, dnnl::memory::data_type::f32, strides);
}

Desc Any(const Dims& shape) {
  return Desc(shape, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
}

int64_t Elements(const Dims& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

// A buffer that may serve several tensors one after another.
struct Buffer {
  std::unique_ptr<void, decltype(&std::free)> data{nullptr, &std::free};
  size_t bytes = 0;
};

// Where a tensor's bytes are while the region runs.
struct Slot {
  Desc desc;
  void* data = nullptr;  // of inputs: the caller's, set for each run; of weights: the bound tensor's
  int buffer = -1;       // of results: the buffer
  int last_reader = -1;  // the last step that reads it
};

// One argument of a primitive: the bytes of a slot, or a copy of them in another layout.
struct Argument {
  int key = 0;
  int slot = 0;
  dnnl::memory memory;           // what the primitive gets
  dnnl::memory source;           // the slot's bytes, where they are copied first
  dnnl::memory target;
  dnnl::reorder reorder;
  std::unique_ptr<Buffer> copy;  // absent: the slot's bytes themselves
  bool once = false;             // copied when the weights are bound
};

struct Step {
  dnnl::primitive primitive;
  std::vector<Argument> arguments;  // the last one is the result
  int result = 0;
};

class OneDnnModule : public ffi::ModuleObj {
 public:
  explicit OneDnnModule(std::string text)
      : text_(std::move(text)), graph_(ParseGraph(text_)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    slots_.resize(graph_.input_shapes.size() + graph_.nodes.size());
    for (size_t i = 0; i < graph_.input_shapes.size(); ++i) slots_[i].desc = Plain(graph_.input_shapes[i]);
    for (const Node& node : graph_.nodes) MakeStep(node);
    AssignBuffers();
  }

  const char* kind() const final { return "tdcs_onednn"; }
  int GetPropertyMask() const final { return ffi::Module::kBinarySerializable | ffi::Module::kRunnable; }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(text_); }
  ffi::String InspectSource(const ffi::String& format) const final { return text_; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    ffi::Module self = ffi::GetRef<ffi::Module>(this);  // lives as long as the function
    if (name == graph_.symbol) {
      return ffi::Function::FromPacked(
          [self, this](const ffi::AnyView* args, int32_t n, ffi::Any*) { Run(args, n); });
    }
    if (name == graph_.symbol + "__bind") {
      return ffi::Function::FromPacked(
          [self, this](const ffi::AnyView* args, int32_t n, ffi::Any*) { Bind(args, n); });
    }
    return std::nullopt;
  }

 private:
  const Dims& Shape(int tensor) const {
    size_t inputs = graph_.input_shapes.size();
    return static_cast<size_t>(tensor) < inputs ? graph_.input_shapes[tensor] : graph_.nodes[tensor - inputs].shape;
  }

  bool IsWeight(int tensor) const {
    return static_cast<size_t>(tensor) < graph_.is_weight.size() && graph_.is_weight[tensor];
  }

  // A slot's bytes, which have the layout `have`, in the layout `wanted`, seen by the primitive as `view`.
  Argument MakeArgument(int key, int slot, const Desc& have, const Desc& wanted, const Desc& view) {
    Argument argument;
    argument.key = key;
    argument.slot = slot;
    argument.memory = dnnl::memory(view, engine_, nullptr);
    if (have != wanted) {
      argument.copy = Allocate(wanted.get_size());
      argument.source = dnnl::memory(have, engine_, nullptr);
      argument.target = dnnl::memory(wanted, engine_, argument.copy->data.get());
      argument.memory.set_data_handle(argument.copy->data.get());
      argument.reorder = dnnl::reorder(argument.source, argument.target);
      argument.once = IsWeight(slot);
    }
    return argument;
  }

  Argument MakeArgument(int key, int tensor, const Desc& wanted) {
    return MakeArgument(key, tensor, slots_[tensor].desc, wanted, wanted);
  }

  // A slot with the tensor in row-major order: its own, or a new one that a step fills.
  int PlainSlot(int tensor) {
    Desc plain = Plain(Shape(tensor));
    if (slots_[tensor].desc == plain) return tensor;
    int slot = static_cast<int>(slots_.size());
    slots_.emplace_back();
    Step step;
    dnnl::memory from(slots_[tensor].desc, engine_, nullptr), to(plain, engine_, nullptr);
    step.primitive = dnnl::reorder(from, to);
    step.arguments.push_back(MakeArgument(DNNL_ARG_FROM, tensor, slots_[tensor].desc));
    Finish(slot, plain, plain, DNNL_ARG_TO, std::move(step));
    return slot;
  }

  void MakeStep(const Node& node) {
    if (node.kind == "conv2d") {
      Expect(node, node.bias ? 3 : 2);
      MakeConvolution(node);
    } else if (node.kind == "matmul" || node.kind == "dense") {
      Expect(node, node.bias ? 3 : 2);
      MakeProduct(node);
    } else if (node.kind == "max_pool2d" || node.kind == "avg_pool2d" || node.kind == "global_avg_pool2d") {
      Expect(node, 1);
      MakePooling(node);
    } else if (node.kind == "add" || node.kind == "sub" || node.kind == "mul") {
      Expect(node, 2);
      MakeBinary(node);
    } else if (node.kind == "relu") {
      Expect(node, 1);
      MakeRelu(node);
    } else {
      TVM_FFI_THROW(ValueError) << "the region " << graph_.symbol << " has an unknown node " << node.kind;
    }
  }

  void Expect(const Node& node, size_t count) {
    if (node.inputs.size() != count) {
      TVM_FFI_THROW(ValueError) << node.kind << " reads " << node.inputs.size() << " tensors, not " << count;
    }
  }

  dnnl::primitive_attr Attributes(const Node& node) {
    dnnl::primitive_attr attributes;
    if (node.relu) {
      dnnl::post_ops after;
      after.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f);
      attributes.set_post_ops(after);
    }
    return attributes;
  }

  void Finish(const Node& node, const Desc& result, Step step) {
    Finish(node.id, result, result, DNNL_ARG_DST, std::move(step));
  }

  // Ends a step that fills a slot in the layout `stored`, seen by the primitive as `view`.
  void Finish(int slot, const Desc& stored, const Desc& view, int key, Step step) {
    int number = static_cast<int>(steps_.size());
    for (const Argument& argument : step.arguments) slots_[argument.slot].last_reader = number;
    slots_[slot].desc = stored;
    step.result = slot;
    step.arguments.push_back(MakeArgument(key, slot, view, view, view));
    steps_.push_back(std::move(step));
  }

  void MakeRelu(const Node& node) {
    const Desc desc = slots_[node.inputs[0]].desc;
    dnnl::eltwise_forward::desc relu(dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_relu, desc, 0.f);
    dnnl::eltwise_forward::primitive_desc made(relu, engine_);
    Step step;
    step.primitive = dnnl::eltwise_forward(made);
    step.arguments.push_back(MakeArgument(DNNL_ARG_SRC, node.inputs[0], desc));
    Finish(node, made.dst_desc(), std::move(step));
  }

  void MakeConvolution(const Node& node) {
    const Dims& source = Shape(node.inputs[0]);
    Dims weights = Shape(node.inputs[1]);
    int64_t groups = node.Attribute("groups").at(0);
    Dims strides = node.Attribute("strides"), padding = node.Attribute("padding"), dilation = node.Attribute("dilation");
    for (int64_t& rate : dilation) rate -= 1;  // oneDNN counts the skipped places
    Dims before(padding.begin(), padding.begin() + 2), after(padding.begin() + 2, padding.end());
    if (groups > 1) {
      weights[0] /= groups;
      weights.insert(weights.begin(), groups);
    }
    auto algorithm = dnnl::algorithm::convolution_direct;
    auto inference = dnnl::prop_kind::forward_inference;
    using Convolution = dnnl::convolution_forward;
    Convolution::desc convolution =
        node.bias ? Convolution::desc(inference, algorithm, Any(source), Any(weights), Any({node.shape[1]}),
                                      Any(node.shape), strides, dilation, before, after)
                  : Convolution::desc(inference, algorithm, Any(source), Any(weights), Any(node.shape), strides,
                                      dilation, before, after);
    Convolution::primitive_desc made(convolution, Attributes(node), engine_);
    Step step;
    step.primitive = Convolution(made);
    step.arguments.push_back(MakeArgument(DNNL_ARG_SRC, node.inputs[0], made.src_desc()));
    step.arguments.push_back(MakeReshaped(DNNL_ARG_WEIGHTS, node.inputs[1], Plain(weights), made.weights_desc()));
    if (node.bias) {
      step.arguments.push_back(
          MakeReshaped(DNNL_ARG_BIAS, node.inputs[2], Plain({node.shape[1]}), made.bias_desc()));
    }
    Finish(node, made.dst_desc(), std::move(step));
  }

  // The bytes of a tensor in row-major order read as `have`, in the layout `wanted`.
  Argument MakeReshaped(int key, int tensor, const Desc& have, const Desc& wanted) {
    return MakeArgument(key, PlainSlot(tensor), have, wanted, wanted);
  }

  void MakeProduct(const Node& node) {
    bool transposed = node.kind == "dense";
    int left = node.inputs[transposed ? 1 : 0], right = node.inputs[transposed ? 0 : 1];
    Dims rows = Shape(left), weights = Shape(right), result = node.shape;
    if (weights.size() == 2 && rows.size() > 2) {  // one matrix for all rows
      int64_t depth = rows.back();
      rows = {Elements(rows) / depth, depth};
      result = {rows[0], node.shape.back()};
    }
    Desc given = Plain(weights);
    if (transposed) {
      std::swap(weights[0], weights[1]);
      given = Desc(weights, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ba);
    }
    Desc factor = IsWeight(right) ? Any(weights) : given;
    Dims bias(result.size(), 1);
    bias.back() = result.back();
    dnnl::matmul::desc product = node.bias ? dnnl::matmul::desc(Plain(rows), factor, Plain(bias), Plain(result))
                                           : dnnl::matmul::desc(Plain(rows), factor, Plain(result));
    dnnl::matmul::primitive_desc made(product, Attributes(node), engine_);
    Step step;
    step.primitive = dnnl::matmul(made);
    step.arguments.push_back(MakeReshaped(DNNL_ARG_SRC, left, Plain(rows), Plain(rows)));
    step.arguments.push_back(MakeReshaped(DNNL_ARG_WEIGHTS, right, given, made.weights_desc()));
    if (node.bias) {
      step.arguments.push_back(MakeReshaped(DNNL_ARG_BIAS, node.inputs[2], Plain(bias), Plain(bias)));
    }
    Finish(node.id, Plain(node.shape), Plain(result), DNNL_ARG_DST, std::move(step));
  }

  void MakePooling(const Node& node) {
    const Dims& source = Shape(node.inputs[0]);
    auto algorithm = dnnl::algorithm::pooling_max;
    Dims window{source[2], source[3]}, strides{1, 1}, before{0, 0}, after{0, 0};
    if (node.kind != "max_pool2d") algorithm = dnnl::algorithm::pooling_avg_exclude_padding;
    if (node.kind != "global_avg_pool2d") {
      const Dims& padding = node.Attribute("padding");
      window = node.Attribute("pool_size");
      strides = node.Attribute("strides");
      before = {padding.at(0), padding.at(1)};
      after = {padding.at(2), padding.at(3)};
      if (node.kind == "avg_pool2d" && node.Attribute("count_include_pad").at(0)) {
        algorithm = dnnl::algorithm::pooling_avg_include_padding;
      }
    }
    const Desc desc = slots_[node.inputs[0]].desc;
    dnnl::pooling_forward::desc pooling(dnnl::prop_kind::forward_inference, algorithm, desc, Any(node.shape), strides,
                                        window, before, after);
    dnnl::pooling_forward::primitive_desc made(pooling, engine_);
    Step step;
    step.primitive = dnnl::pooling_forward(made);
    step.arguments.push_back(MakeArgument(DNNL_ARG_SRC, node.inputs[0], desc));
    Finish(node, made.dst_desc(), std::move(step));
  }

  void MakeBinary(const Node& node) {
    auto algorithm = node.kind == "add"   ? dnnl::algorithm::binary_add
                     : node.kind == "sub" ? dnnl::algorithm::binary_sub
                                          : dnnl::algorithm::binary_mul;
    // The second tensor is brought into the first one's layout, unless only the second has a layout of its own.
    int leading = slots_[node.inputs[0]].desc == Plain(Shape(node.inputs[0])) ? node.inputs[1] : node.inputs[0];
    const Desc desc = slots_[leading].desc;
    dnnl::binary::desc binary(algorithm, desc, desc, desc);
    dnnl::binary::primitive_desc made(binary, Attributes(node), engine_);
    Step step;
    step.primitive = dnnl::binary(made);
    step.arguments.push_back(MakeArgument(DNNL_ARG_SRC_0, node.inputs[0], desc));
    step.arguments.push_back(MakeArgument(DNNL_ARG_SRC_1, node.inputs[1], desc));
    Finish(node, made.dst_desc(), std::move(step));
  }

  static std::unique_ptr<Buffer> Allocate(size_t bytes) {
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = std::max<size_t>(64, (bytes + 63) / 64 * 64);
    buffer->data.reset(std::aligned_alloc(64, buffer->bytes));
    if (!buffer->data) TVM_FFI_THROW(MemoryError) << "no memory for a buffer of " << bytes << " bytes";
    return buffer;
  }

  // Results whose lives do not overlap share a buffer.
  void AssignBuffers() {
    std::set<int> kept(graph_.outputs.begin(), graph_.outputs.end());
    std::vector<size_t> sizes;
    std::vector<int> free;
    for (int number = 0; number < static_cast<int>(steps_.size()); ++number) {
      Slot& slot = slots_[steps_[number].result];
      size_t bytes = slot.desc.get_size();
      auto best = free.end();
      for (auto each = free.begin(); each != free.end(); ++each) {
        auto distance = [&](int buffer) { return sizes[buffer] > bytes ? sizes[buffer] - bytes : bytes - sizes[buffer]; };
        if (best == free.end() || distance(*each) < distance(*best)) best = each;
      }
      if (best == free.end()) {
        slot.buffer = static_cast<int>(sizes.size());
        sizes.push_back(bytes);
      } else {
        slot.buffer = *best;
        sizes[slot.buffer] = std::max(sizes[slot.buffer], bytes);
        free.erase(best);
      }
      for (int earlier = 0; earlier <= number; ++earlier) {
        int result = steps_[earlier].result;
        if (slots_[result].last_reader == number && !kept.count(result)) free.push_back(slots_[result].buffer);
      }
    }
    for (size_t bytes : sizes) buffers_.push_back(Allocate(bytes));
    for (Slot& slot : slots_) {
      if (slot.buffer >= 0) slot.data = buffers_[slot.buffer]->data.get();
    }
  }

  static void* Data(const ffi::AnyView& value) {
    DLTensor* tensor = value.cast<DLTensor*>();
    return static_cast<char*>(tensor->data) + tensor->byte_offset;
  }

  void Reorder(Argument* argument) {
    argument->source.set_data_handle(slots_[argument->slot].data);
    argument->reorder.execute(stream_, argument->source, argument->target);
  }

  void Bind(const ffi::AnyView* args, int32_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    int32_t next = 0;
    weights_.clear();
    for (size_t i = 0; i < graph_.is_weight.size(); ++i) {
      if (!graph_.is_weight[i]) continue;
      if (next == n) TVM_FFI_THROW(ValueError) << graph_.symbol << " has more weights than the " << n << " given";
      weights_.push_back(args[next].cast<ffi::Tensor>());  // kept alive
      slots_[i].data = Data(args[next++]);
    }
    if (next != n) TVM_FFI_THROW(ValueError) << graph_.symbol << " has " << next << " weights, not " << n;
    for (Step& step : steps_) {
      for (Argument& argument : step.arguments) {
        if (argument.once) Reorder(&argument);
      }
    }
    stream_.wait();
    bound_ = true;
  }

  void Run(const ffi::AnyView* args, int32_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t inputs = graph_.input_shapes.size(), outputs = graph_.outputs.size();
    if (static_cast<size_t>(n) != inputs + outputs) {
      TVM_FFI_THROW(TypeError) << graph_.symbol << " takes " << inputs + outputs << " tensors, not " << n;
    }
    bool has_weights = std::find(graph_.is_weight.begin(), graph_.is_weight.end(), true) != graph_.is_weight.end();
    if (has_weights && !bound_) TVM_FFI_THROW(RuntimeError) << graph_.symbol << " runs before its weights are bound";
    for (size_t i = 0; i < inputs; ++i) {
      if (!graph_.is_weight[i]) slots_[i].data = Data(args[i]);
    }
    for (Step& step : steps_) {
      std::unordered_map<int, dnnl::memory> arguments;
      for (Argument& argument : step.arguments) {
        if (argument.copy) {
          if (!argument.once) Reorder(&argument);
        } else {
          argument.memory.set_data_handle(slots_[argument.slot].data);
        }
        arguments.emplace(argument.key, argument.memory);
      }
      step.primitive.execute(stream_, arguments);
    }
    for (size_t i = 0; i < outputs; ++i) {
      const Slot& slot = slots_[graph_.outputs[i]];
      void* target = Data(args[inputs + i]);
      Desc plain = Plain(Shape(graph_.outputs[i]));
      if (slot.desc == plain) {
        stream_.wait();
        std::memcpy(target, slot.data, plain.get_size());
      } else {
        dnnl::memory from(slot.desc, engine_, slot.data), to(plain, engine_, target);
        dnnl::reorder(from, to).execute(stream_, from, to);
      }
    }
    stream_.wait();
  }

  std::string text_;
  Graph graph_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<ffi::Tensor> weights_;
  std::mutex mutex_;
  bool bound_ = false;
};

ffi::Module Make(const std::string& text) {
  try {
    return ffi::Module(ffi::make_object<OneDnnModule>(text));
  } catch (const dnnl::error& error) {
    TVM_FFI_THROW(RuntimeError) << "oneDNN cannot make the region: " << error.what();
  } catch (const std::logic_error& error) {  // std::stoi and at() of a damaged text
    TVM_FFI_THROW(ValueError) << "the region's text is damaged: " << error.what();
  }
  TVM_FFI_UNREACHABLE();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // A process may load several artifacts, each with this code; the newest serves the next one.
  ffi::Function::SetGlobal("tdcs_onednn.create",
                           ffi::Function::FromTyped([](const ffi::String& text) { return Make(std::string(text)); }),
                           /*override=*/true);
  ffi::Function::SetGlobal("ffi.Module.load_from_bytes.tdcs_onednn",
                           ffi::Function::FromTyped([](const ffi::Bytes& bytes) {
                             return Make(std::string(bytes.data(), bytes.size()));
                           }),
                           /*override=*/true);
}

}  // namespace
}  // namespace tdcs
