#include "ascend_sim/faults/faults.h"

namespace onesided::sim {

Faults& faults() {
  static auto* instance = new Faults;
  return *instance;
}

}  // namespace onesided::sim
