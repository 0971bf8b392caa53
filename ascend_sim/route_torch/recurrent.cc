// For npu tensors PyTorch computes LSTM and GRU cells with fused kernels that its CPU does not have. Here they
// are, in plain operators (which are routed), with what their derivatives need.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "ascend_sim/route_torch/replacements.h"

namespace onesided::sim {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const Bias& bias) { return bias && bias->defined() ? gates + *bias : gates; }

Tensor or_zeros(const Bias& gradient, const Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

// Derivatives by what sigmoid and tanh returned.
Tensor through_sigmoid(const Tensor& gradient, const Tensor& value) { return gradient * value * (1 - value); }
Tensor through_tanh(const Tensor& gradient, const Tensor& value) { return gradient * (1 - value * value); }

// (new hidden state, new cell state, workspace = the four gates).
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
                                             const Bias& input_bias, const Bias& hidden_bias) {
  const Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor in = at::sigmoid(parts[0]);
  const Tensor forget = at::sigmoid(parts[1]);
  const Tensor candidate = at::tanh(parts[2]);
  const Tensor out = at::sigmoid(parts[3]);
  const Tensor new_cell = forget * cell + in * candidate;
  return {out * at::tanh(new_cell), new_cell, at::cat({in, forget, candidate, out}, 1)};
}

// (gradients of the gates, of the cell state, of the bias).
std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Bias& hidden_gradient, const Bias& cell_gradient,
                                                      const Tensor& cell, const Tensor& new_cell,
                                                      const Tensor& workspace, bool has_bias) {
  if (!(hidden_gradient && hidden_gradient->defined()) && !(cell_gradient && cell_gradient->defined())) return {};
  const auto parts = workspace.chunk(4, 1);
  const Tensor squashed = at::tanh(new_cell);
  const Tensor of_hidden = or_zeros(hidden_gradient, new_cell);
  const Tensor of_cell = or_zeros(cell_gradient, new_cell) + through_tanh(of_hidden * parts[3], squashed);
  const Tensor of_gates =
      at::cat({through_sigmoid(of_cell * parts[2], parts[0]), through_sigmoid(of_cell * cell, parts[1]),
               through_tanh(of_cell * parts[0], parts[2]), through_sigmoid(of_hidden * squashed, parts[3])},
              1);
  return {of_gates, of_cell * parts[1], has_bias ? of_gates.sum(0) : Tensor()};
}

// (new hidden state, workspace = reset gate, update gate, candidate, old hidden state, hidden part of the candidate).
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                                    const Bias& input_bias, const Bias& hidden_bias) {
  const auto in = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto old = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = at::sigmoid(old[0] + in[0]);
  const Tensor update = at::sigmoid(old[1] + in[1]);
  const Tensor candidate = at::tanh(in[2] + reset * old[2]);
  return {(hidden - candidate) * update + candidate, at::cat({reset, update, candidate, hidden, old[2]}, 1)};
}

// (gradients of the input gates, the hidden gates, the hidden state, the two biases).
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& gradient, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &candidate = parts[2], &hidden = parts[3], &old_part = parts[4];
  const Tensor of_update = through_sigmoid(gradient * (hidden - candidate), update);
  const Tensor of_candidate = through_tanh(gradient * (1 - update), candidate);
  const Tensor of_reset = through_sigmoid(of_candidate * old_part, reset);
  const Tensor of_input = at::cat({of_reset, of_update, of_candidate}, 1);
  const Tensor of_hidden = at::cat({of_reset, of_update, of_candidate * reset}, 1);
  return {of_input, of_hidden, gradient * update, has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

}  // namespace

void replace_recurrent_cells() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library->impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library->impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library->impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace onesided::sim
