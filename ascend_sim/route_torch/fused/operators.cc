#include "ascend_sim/route_torch/fused/operators.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ascend_sim/route_torch/routed_call.h"

namespace onesided::sim {
namespace {

template <Results (*compute)(Arguments&)>
void run_fused(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  RoutedCall(op, stack).run([&] {
    Results results;
    {
      Arguments arguments(op, *stack);
      results = compute(arguments);
    }
    torch::jit::drop(*stack, op.schema().arguments().size());
    for (at::Tensor& result : results) stack->emplace_back(std::move(result));
  });
}

template <Results (*compute)(Arguments&)>
void put(torch::Library& library, const char* name) {
  library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_fused<compute>>());
}

void install_of_torch_npu() {
  auto* library = new torch::Library(torch::Library::IMPL, "npu", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  put<rms_norm>(*library, "npu_rms_norm");
  put<add_rms_norm>(*library, "npu_add_rms_norm");
  put<swiglu>(*library, "npu_swiglu");
  put<format_cast>(*library, "npu_format_cast");
  put<transpose_batch_matmul>(*library, "npu_transpose_batchmatmul");
  put<rotary_mul>(*library, "npu_rotary_mul");
  put<interleave_rope>(*library, "npu_interleave_rope");
  put<scatter_nd_update>(*library, "npu_scatter_nd_update");
  put<scatter_nd_update_in_place>(*library, "npu_scatter_nd_update_");
  put<kv_rms_norm_rope_cache>(*library, "npu_kv_rmsnorm_rope_cache");
  for (const char* name : {"npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"}) {
    const std::string operator_name = name;
    put<fused_infer_attention>(*library, name);
    put<fused_infer_attention_out>(*library, (operator_name + ".out").c_str());
    put<no_workspace>(*library, ("_" + operator_name + "_get_max_workspace").c_str());
  }
}

// The operators that torch_npu takes from the Ascend Transformer Boost library.
void install_of_transformer_boost() {
  auto* library = new torch::Library(torch::Library::IMPL, "atb", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  put<matmul_add>(*library, "_npu_matmul_add_fp32");
  put<rotary_embedding>(*library, "_npu_rotary_embedding");
  put<reshape_and_cache>(*library, "_npu_reshape_and_cache");
  put<reshape_and_cache_one>(*library, "_npu_reshape_and_cache_siso");
  put<paged_attention>(*library, "_npu_paged_attention");
  put<no_workspace>(*library, "_npu_paged_attention_get_workspace");
  put<paged_cache_load>(*library, "npu_paged_cache_load");
  put<paged_cache_load>(*library, "npu_paged_cache_load.out");
  put<ring_mla>(*library, "npu_ring_mla");
  put<ring_mla>(*library, "npu_ring_mla.out");
}

}  // namespace

Results no_workspace(Arguments& /*arguments*/) { return {at::empty({1}, at::kByte)}; }

void install_fused_operators() {
  install_of_torch_npu();
  install_of_transformer_boost();
}

}  // namespace onesided::sim
