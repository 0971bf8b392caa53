"""The pinned packages of each framework's environment: the framework, and what its import needs beyond .venv."""

from __future__ import annotations

# What the Python of both vLLM releases imports.
_VLLM = """
anyio==4.16.0 astor==0.8.1 blake3==1.0.11 cachetools==8.0.3 cbor2==6.3.0 cloudpickle==3.1.3 depyf==0.20.0 dill==0.4.1
diskcache==5.6.3 distro==1.9.0 einops==0.8.2 gguf==0.19.0 h11==0.16.0 httpcore==1.0.9 httpcore2==2.17.0 httpx==0.29.0
httpx2==2.17.0 ijson==3.6.0 interegular==0.3.3 jiter==0.19.0 lark==1.2.2 llguidance==1.9.1 mistral_common==1.13.1
msgspec==0.23.0 openai_harmony==0.0.8 opentelemetry_api==1.45.2 opentelemetry_sdk==1.45.2
partial_json_parser==0.2.1.1.post7 pillow==13.0.0 prometheus_client==0.26.0 prometheus_fastapi_instrumentator==8.1.0
psutil==7.2.2 py_cpuinfo==9.0.0 pybase64==1.5.1 pycountry==26.2.16 pydantic_extra_types==2.11.1 python_dateutil==4.0.0
python_json_logger==4.2.0 python_multipart==0.0.34 pyzmq==27.3.0 regex==2026.12.2 safetensors==0.8.0
sentencepiece==0.2.3 setproctitle==1.3.8 sniffio==1.3.1 tiktoken==0.14.0 tqdm==4.70.1 truststore==0.10.5
uvicorn==0.55.0 uvloop==0.23.0
"""

PINS = {
    "vllm-0.34.0": "vllm==0.34.0 transformers==5.22.2 tokenizers==0.23.3 huggingface_hub==2.4.0 hf_xet==1.8.0 "
    "openai==3.63.0 fastapi==0.136.3 starlette==1.10.0 orjson==3.13.0 xgrammar==0.2.8 apache_tvm_ffi==0.1.11 " + _VLLM,
    "vllm-0.18.0": "vllm==0.18.0 transformers==4.57.6 tokenizers==0.22.2 huggingface_hub==0.36.2 openai==2.24.0 "
    "fastapi==0.123.10 starlette==0.50.0 xgrammar==0.1.32 " + _VLLM,
    "verl-0.9.1": "verl==0.9.1 accelerate==1.16.0 antlr4_python3_runtime==4.9.3 anyio==4.16.0 cachetools==8.0.3 "
    "cloudpickle==3.1.3 codetiming==1.4.0 datasets==5.2.0 dill==0.4.1 fastapi==0.136.3 huggingface_hub==0.36.2 "
    "hydra_core==1.3.2 importlib_metadata==10.2.0 multiprocess==0.70.19 omegaconf==2.3.0 opentelemetry_api==1.45.2 "
    "orjson==3.13.0 pandas==3.1.1 peft==0.21.2 psutil==7.2.2 pyarrow==26.0.1 python_dateutil==4.0.0 pyvers==0.2.3 "
    "pyzmq==27.3.0 regex==2026.12.2 safetensors==0.8.0 six==1.17.0 starlette==1.10.0 tensordict==0.15.3 "
    "tokenizers==0.22.2 tqdm==4.70.1 transformers==4.57.6 tzdata==2026.6 uvicorn==0.55.0 xxhash==4.1.0 zipp==4.1.2",
}
