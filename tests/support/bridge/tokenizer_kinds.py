"""Small real tokenizers of every kind, trained by the package `tokenizers` on generated lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.support.bridge.tokenizer_corpus import lines

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SIZE = 1500
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _train(tokenizer: Tokenizer, trainer: trainers.Trainer, count: int = 1500) -> Tokenizer:
    tokenizer.train_from_iterator(lines(count, seed=2), trainer)
    return tokenizer


def _byte_trainer(special: list[str | AddedToken]) -> trainers.BpeTrainer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )


def gpt2() -> Tokenizer:
    """Byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return _train(tokenizer, _byte_trainer(["<|endoftext|>"]))


def roberta() -> Tokenizer:
    """Byte-level BPE with a space before the text, a template and a mask that takes spaces before it."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer = _train(tokenizer, _byte_trainer(["<s>", "<pad>", "</s>", "<unk>"]))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<new>", rstrip=True, single_word=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def _split_bytes(pattern: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer = _train(tokenizer, _byte_trainer(["<s>", "</s>"]))
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)]),
        ]
    )
    return tokenizer


def llama3() -> Tokenizer:
    """A pattern of its own, words of the vocabulary before merges."""
    return _split_bytes(LLAMA_3)


def o200k() -> Tokenizer:
    """A pattern that tells upper from lower case."""
    return _split_bytes(O200K)


def _with_bytes(tokenizer: Tokenizer) -> Tokenizer:
    """The same with tokens for bytes."""
    text = json.loads(tokenizer.to_str())
    vocabulary = text["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary += [[token, -20.0] for token in BYTES]
    else:
        start = len(vocabulary)
        vocabulary.update({token: start + place for place, token in enumerate(BYTES)})
    text["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(text))


def llama2() -> Tokenizer:
    """BPE as sentencepiece has it: spaces are marks, nothing is split, bytes stand for unknown characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special: list[str | AddedToken] = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, limit_alphabet=200, show_progress=False
    )
    tokenizer = _train(tokenizer, trainer)
    text = json.loads(tokenizer.to_str())
    text["pre_tokenizer"] = None
    tokenizer = _with_bytes(Tokenizer.from_str(json.dumps(text)))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def gemma() -> Tokenizer:
    """BPE over marks at the start of the text only, unknown characters in a row as one token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    special: list[str | AddedToken] = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, limit_alphabet=150, show_progress=False
    )
    return _train(tokenizer, trainer)


def _bert(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special: list[str | AddedToken] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, special_tokens=special, limit_alphabet=300, show_progress=False
    )
    tokenizer = _train(tokenizer, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert_cased() -> Tokenizer:
    """Word pieces."""
    return _bert(False)


def bert_uncased() -> Tokenizer:
    """Word pieces without case and accents."""
    return _bert(True)


def _unigram(special: list[str | AddedToken]) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    # every character of the lines becomes a piece, so few lines leave unknown characters in others
    trainer = trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    return _train(tokenizer, trainer, 300)


def t5() -> Tokenizer:
    """The likeliest pieces."""
    tokenizer = _unigram(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def unigram_bytes() -> Tokenizer:
    """The likeliest pieces with bytes for unknown characters."""
    tokenizer = _with_bytes(_unigram(["<unk>", "<s>"]))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return tokenizer


def words() -> Tokenizer:
    """BPE with suffixes of words behind several pre-tokenizers."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("merged_with_previous"),
            pre_tokenizers.Split("the", "merged_with_next"),
            pre_tokenizers.Split(Regex("[aeiou]"), "contiguous"),
        ]
    )
    tokenizer.decoder = decoders.BPEDecoder()
    special: list[str | AddedToken] = ["[UNK]", "[CLS]"]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=special,
        limit_alphabet=200,
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    return _train(tokenizer, trainer)


KINDS: dict[str, Callable[[], Tokenizer]] = {
    made.__name__: made
    for made in (
        gpt2,
        roberta,
        llama3,
        o200k,
        llama2,
        gemma,
        bert_cased,
        bert_uncased,
        t5,
        unigram_bytes,
        words,
    )
}


@cache
def trained(kind: str) -> Tokenizer:
    """A tokenizer of a kind, trained once and read from its text: reading may change the last bit of a score."""
    return Tokenizer.from_str(KINDS[kind]().to_str())
