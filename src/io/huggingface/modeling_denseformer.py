"""DenseFormer for Hugging Face transformers, written by `denseformer export --format huggingface`.

    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)

A decoder of pre-norm blocks with rotary positions, exact GELU and a head tied to the embedding. After
block i a depth-weighted average replaces the stream by a weighted sum of earlier outputs,

    Y_i = sum over j in S_i of a_ij X_j,

where X_0 is the embedding and X_j the output of block j. `depth_sources` of the configuration lists S_i,
oldest first, for each block that has an average; so every topology, masks included, is the same code.
`mixer` says with which weights (learned scalars, or functions of the token), `streams` which parts of the
next block get an average of their own: r (all of it), rv (the residual stream; v) or rqkv.
"""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class DenseFormerConfig(PretrainedConfig):
    model_type = "denseformer"
    attribute_map = {
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "hidden_size": "n_embd",
        "max_position_embeddings": "seq_len",
    }

    def __init__(self, n_layer=12, n_head=12, n_embd=768, vocab_size=50304, seq_len=256, bias=False,
                 gains=False, dwa="none", depth_sources=None, mixer="static", streams="r",
                 mixer_norm="none", **kwargs):
        self.n_layer = n_layer
        self.n_head = n_head
        self.n_embd = n_embd
        self.vocab_size = vocab_size
        self.seq_len = seq_len
        self.bias = bias
        self.gains = gains
        self.dwa = dwa  # the name of the topology, for denseformer import
        self.depth_sources = depth_sources or {}  # str(i) -> S_i, for 1 <= i <= n_layer
        self.mixer = mixer
        self.streams = streams
        self.mixer_norm = mixer_norm
        super().__init__(**kwargs)


def rotate(x, positions):
    """Applies rotary embeddings to x [B, H, T, size]: the pair (2m, 2m + 1) at position t rotates by
    t 10000^(-2m/size). positions is [B or 1, T]."""
    size = x.shape[-1]
    rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=x.device) / size)
    angles = positions[:, None, :, None].double() * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.heads, self.layer = config.n_head, layer
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def project(self, inputs):
        """q, k and v, each from its own input; one matmul where that is the same."""
        if all(x is inputs[0] for x in inputs):
            return self.c_attn(inputs[0]).chunk(3, dim=2)
        biases = (None,) * 3 if self.c_attn.bias is None else self.c_attn.bias.chunk(3)
        return [F.linear(x, weight, bias)
                for x, weight, bias in zip(inputs, self.c_attn.weight.chunk(3), biases)]

    def forward(self, inputs, positions, mask, cache):
        batch, time, width = inputs[0].shape
        q, k, v = (part.reshape(batch, time, self.heads, -1).transpose(1, 2)
                   for part in self.project(inputs))
        q, k = rotate(q, positions), rotate(k, positions)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, width))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class LayerNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.n_embd))
        self.bias = nn.Parameter(torch.zeros(config.n_embd)) if config.bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.ln_1 = LayerNorm(config)
        self.attn = Attention(config, layer)
        self.ln_2 = LayerNorm(config)
        self.mlp = Mlp(config)
        self.gain_attn = nn.Parameter(torch.ones(1)) if config.gains else None
        self.gain_mlp = nn.Parameter(torch.ones(1)) if config.gains else None
        # Norms of the streams of k and v, where there is a module before the block.
        mixed = str(layer) in config.depth_sources
        self.ln_k = LayerNorm(config) if mixed and "k" in config.streams else None
        self.ln_v = LayerNorm(config) if mixed and "v" in config.streams else None

    def forward(self, streams, positions, mask, cache):
        """streams: [r], [r, v] or [r, q, k, v]."""
        x = streams[0]
        q = self.ln_1(streams[1] if self.ln_k is not None else x)
        k = q if self.ln_k is None else self.ln_k(streams[2])
        v = q if self.ln_v is None else self.ln_v(streams[-1])
        x = (x if self.gain_attn is None else self.gain_attn * x) + self.attn(
            (q, k, v), positions, mask, cache)
        return (x if self.gain_mlp is None else self.gain_mlp * x) + self.mlp(self.ln_2(x))


def rms(x):
    """x / sqrt(mean(x^2) + 1e-6), summed in fp32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class DepthWeights(nn.Module):
    """The scalars of one module, [C, n] for C streams; the newest source is last."""

    def __init__(self, streams, sources, prepost):
        super().__init__()
        self.prepost = prepost
        self.weight = nn.Parameter(torch.zeros(streams, sources))


class Scale(nn.Module):
    def __init__(self, streams, width):
        super().__init__()
        self.weight = nn.Parameter(torch.full((streams, width), 1e-3))


class TokenWeights(nn.Module):
    """What else the weights of one module depend on: dynamic, attention and attnres."""

    def __init__(self, config, streams, sources):
        super().__init__()
        width, count = config.n_embd, streams * sources
        if config.mixer == "dynamic":
            self.w1 = nn.Linear(width, count, bias=False)
            self.w2 = nn.Linear(count, count, bias=False)
            self.w1.initial_std, self.w2.initial_std = width ** -0.5, 0.0
            if config.mixer_norm == "prepost":
                self.post = Scale(streams, width)
        else:
            self.query = nn.Parameter(torch.zeros(streams, width))
            if config.mixer == "attention":
                self.gate = nn.Parameter(torch.zeros(streams))


class DepthAverages(nn.Module):
    """alphas[str(i - 1)] and mixers[str(i - 1)] are what the module after block i has, where there is
    one."""

    def __init__(self, config):
        super().__init__()
        known = ("static", "dynamic", "attention", "attnres")
        if config.mixer not in known or config.streams not in ("r", "rv", "rqkv"):
            raise ValueError(f"mixer {config.mixer!r} with streams {config.streams!r}, expected one of "
                             f"{known} with r, rv or rqkv")
        self.mixer = config.mixer
        self.prepost = config.mixer_norm == "prepost"
        self.sources = {int(block): list(row) for block, row in config.depth_sources.items()}
        self.alphas, self.mixers = nn.ModuleDict(), nn.ModuleDict()
        for block, row in self.sources.items():
            streams = 1 if block == config.n_layer else len(config.streams)
            if self.mixer in ("static", "dynamic"):
                self.alphas[str(block - 1)] = DepthWeights(streams, len(row), self.prepost)
            if self.mixer != "static":
                self.mixers[str(block - 1)] = TokenWeights(config, streams, len(row))

    def attend(self, own, block, x, residuals):
        """Softmax over what the blocks added to the residual stream."""
        added = [x[j] if j == 0 else x[j] - residuals[j - 1] for j in self.sources[block]]
        scores = torch.stack([rms(v).float() @ own.query.float().t() for v in added])
        weights = scores.softmax(0).to(x[block].dtype)  # [n, B, T, C]
        sums = [sum(weights[n, ..., c, None] * v for n, v in enumerate(added))
                for c in range(own.query.shape[0])]
        if self.mixer == "attnres":
            return sums
        return [x[block] + gate * total for gate, total in zip(own.gate, sums)]

    def forward(self, block, x, residuals):
        """The streams of the module after `block` from the outputs x [0..block] and the residual streams
        [0..block - 1]."""
        if self.mixer in ("attention", "attnres"):
            return self.attend(self.mixers[str(block - 1)], block, x, residuals)
        weights = self.alphas[str(block - 1)].weight  # [C, n]
        if self.mixer == "dynamic":
            own = self.mixers[str(block - 1)]
            z = own.w2(F.gelu(own.w1(rms(x[block]))))
            weights = weights + z.unflatten(-1, weights.shape)  # [B, T, C, n]
        weights = weights.movedim(-1, 0)[..., None]  # [n, (B, T,) C, 1]
        read = [x[j] for j in self.sources[block]]
        if self.prepost:
            read = [rms(source) for source in read]
        sums = [sum(weights[n, ..., c, :] * source for n, source in enumerate(read))
                for c in range(weights.shape[-2])]
        if not self.prepost:
            return sums
        return [x[block] + scale * rms(total) for scale, total in zip(own.post.weight, sums)]


class DenseFormerForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = DenseFormerConfig
    base_model_prefix = "model"
    _no_split_modules = ["Block"]

    def __init__(self, config):
        super().__init__(config)
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            h=nn.ModuleList(Block(config, layer) for layer in range(config.n_layer)),
            ln_f=LayerNorm(config)))
        self.dwa_modules = DepthAverages(config)
        self.post_init()

    def _init_weights(self, module):
        """Each module sets its own parameters alone: transformers 5 sets each parameter once."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=getattr(module, "initial_std", 0.02))
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, DepthWeights):
            with torch.no_grad():
                module.weight.zero_()
                module.weight[:, -1] = 0 if module.prepost else 1
        elif isinstance(module, Scale):
            nn.init.constant_(module.weight, 1e-3)
        elif isinstance(module, TokenWeights) and self.config.mixer != "dynamic":
            nn.init.zeros_(module.query)
            if self.config.mixer == "attention":
                nn.init.zeros_(module.gate)
        elif isinstance(module, LayerNorm):
            nn.init.ones_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Block) and module.gain_attn is not None:
            nn.init.ones_(module.gain_attn)
            nn.init.ones_(module.gain_mlp)

    def get_input_embeddings(self):
        return self.transformer.wte

    def set_input_embeddings(self, embeddings):
        self.transformer.wte = embeddings

    def get_output_embeddings(self):
        return None  # the head multiplies by the embedding itself

    @staticmethod
    def _mask(attention_mask, past, time, device):
        """True where a query [.., time] may see a key [.., past + time]."""
        queries = torch.arange(past, past + time, device=device)[:, None]
        keys = torch.arange(past + time, device=device)
        mask = (keys <= queries)[None, None]
        if attention_mask is None:
            return mask
        if attention_mask.dim() != 2 or attention_mask.shape[1] != past + time:
            raise ValueError(f"attention_mask of shape {tuple(attention_mask.shape)}, expected "
                             f"[batch, {past + time}]")
        # A padding token sees itself, so that its row of scores is not empty.
        return (mask & attention_mask[:, None, None, :].bool()) | (keys == queries)[None, None]

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None,
                inputs_embeds=None, labels=None, use_cache=None, logits_to_keep=0, return_dict=None,
                **kwargs):
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("expected either input_ids or inputs_embeds")
        y = self.transformer.wte(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache is None:
            use_cache = past_key_values is not None
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        time = y.shape[1]
        if position_ids is None:
            position_ids = torch.arange(past, past + time, device=y.device)[None]
        mask = self._mask(attention_mask, past, time, y.device)

        outputs, residuals, streams = [y], [y], [y]
        for layer, block in enumerate(self.transformer.h):
            outputs.append(block(streams, position_ids, mask, past_key_values))
            streams = [outputs[-1]]
            if layer + 1 in self.dwa_modules.sources:
                streams = self.dwa_modules(layer + 1, outputs, residuals)
            residuals.append(streams[0])
        y = streams[0]
        if logits_to_keep:
            y = y[:, -logits_to_keep:]
        logits = F.linear(self.transformer.ln_f(y), self.transformer.wte.weight)

        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        if return_dict is False:
            return tuple(value for value in (loss, logits, past_key_values) if value is not None)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
