"""One engine reads the memory of another."""

import onesided

NBYTES = 8 << 20
with (
    onesided.Engine("127.0.0.1:0") as owner,
    onesided.Engine("127.0.0.1:0") as reader,
    onesided.host_pool(NBYTES) as source,
    onesided.host_pool(NBYTES) as target,
):
    source.numpy()[:] = 7
    owner.register_mem(source.addr, source.nbytes, "host")
    reader.register_mem(target.addr, target.nbytes, "host")
    reader.connect(owner.id)
    status = reader.transfer_async(owner.id, "READ", [(target.addr, source.addr, NBYTES)]).wait()
    print(f"{status.name}, {'equal' if (target.numpy() == 7).all() else 'DIFFERENT'}")
