"""What folders of Hugging Face are made for, by the pipelines of transformers."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lamella.base.errors import InputError
from lamella.pipeline.tasks import find_task
from lamella.pipeline.tasks.images import read_picture, read_seeing
from lamella.pipeline.tasks.speech import Hearing, mel_features, read_wav
from tests.support.cli.skriptnd_models import call
from tests.support.models.checkpoints import VOCABULARY, save

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *("the", "cat", "sat", "on", "a", "mat", "dog", "ran", "in", "big", "red", "house", "who", "where"),
]
TEXT = "the cat sat on a mat"
QUESTION, CONTEXT = "who sat on a mat", "the big cat sat on a red mat in the house"
PROCESSORS = (
    "ViTImageProcessorPil",
    "CLIPImageProcessorPil",
    "DeiTImageProcessorPil",
    "SiglipImageProcessorPil",
    "SegformerImageProcessorPil",
    "ConvNextImageProcessorPil",
)
EXTRACTOR: Any = transformers.WhisperFeatureExtractor
LABELS = {0: "O", 1: "PER", 2: "LOC"}


def add_tokenizer(folder: Path) -> Any:
    """A tokenizer of words, for us and for transformers."""
    words = [*WORDS, *(f"word{number}" for number in range(VOCABULARY - len(WORDS)))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    made.add_special_tokens(WORDS[:5])
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), WORDS, strict=False))
    judge: Any = transformers.PreTrainedTokenizerFast
    found = judge(tokenizer_object=made, **names)
    found.save_pretrained(folder)
    return found


def make(name: str, folder: Path, **changes: Any) -> tuple[Any, Any]:
    model = save(name, folder, seed=5, **changes)
    return model, add_tokenizer(folder)


def without_kinds(folder: Path) -> None:
    """Let the tokenizer say that its model takes no kinds of tokens."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_input_names": ["input_ids"]}))


def run(folder: Path, *given: str | Path) -> Any:
    """The results of a task, one for each input."""
    found = call("run", folder, *given, "--json", "--backend", "reference")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)["results"]


def assert_alike(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == (pytest.approx(value, abs=1e-5) if key == "score" else value), key


def test_masked_words(tmp_path: Path) -> None:
    model, tokenizer = make("bert masked", tmp_path)
    text = TEXT.replace("sat", "[MASK]")
    wanted = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)(text)
    assert_alike(run(tmp_path, "--text", text)[0], wanted)
    shown = call("run", tmp_path, "--text", text, "--top", "2", "--backend", "reference")
    assert shown.stdout.splitlines() == [f"{item['token_str']}  {item['score']:.4f}" for item in wanted[:2]]
    refused = call("run", tmp_path, "--text", TEXT)
    assert refused.exit_code == 1
    assert "the text has no [MASK]" in refused.stderr


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_labels_of_texts(kind: str, tmp_path: Path) -> None:
    model, tokenizer = make("bert classes", tmp_path, problem_type=kind)
    wanted: Any = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=5)(
        [TEXT, CONTEXT]
    )
    for ours, theirs in zip(run(tmp_path, "--text", TEXT, "--text", CONTEXT), wanted, strict=True):
        assert_alike(ours, theirs)


def test_labels_of_tokens(tmp_path: Path) -> None:
    model, tokenizer = make("bert tokens", tmp_path, id2label=LABELS)
    wanted = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)(CONTEXT)
    assert_alike(run(tmp_path, "--text", CONTEXT)[0], wanted)


def test_answers_to_questions(tmp_path: Path) -> None:
    """All parts of the text by the rule itself: shares of beginnings times shares of ends."""
    model, tokenizer = make("bert spans", tmp_path)
    given = tokenizer(
        QUESTION, CONTEXT, return_tensors="pt", return_offsets_mapping=True, return_token_type_ids=True
    )
    offsets = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        found = model(**given)
    inside = [place for place, number in enumerate(given.sequence_ids(0)) if number == 1]
    begins, ends = (item[0, inside].softmax(-1).tolist() for item in (found.start_logits, found.end_logits))
    rated = {
        (offsets[inside[a]][0], offsets[inside[b]][1]): begins[a] * ends[b]
        for a in range(len(inside))
        for b in range(a, len(inside))
    }
    best = sorted(rated, key=lambda span: -rated[span])[:5]
    wanted = [
        {"score": rated[span], "start": span[0], "end": span[1], "answer": CONTEXT[slice(*span)]}
        for span in best
    ]
    assert_alike(run(tmp_path, "--text", QUESTION, "--context", CONTEXT)[0], wanted)
    without_kinds(tmp_path)
    assert run(tmp_path, "--text", QUESTION, "--context", CONTEXT)[0][0]["score"] != wanted[0]["score"]
    assert "--context TEXT" in call("run", tmp_path, "--text", QUESTION).stderr


def test_vectors_of_tokens(tmp_path: Path) -> None:
    model, tokenizer = make("modernbert", tmp_path)
    (wanted,) = transformers.pipeline("feature-extraction", model=model, tokenizer=tokenizer)(TEXT)
    np.testing.assert_allclose(run(tmp_path, "--text", TEXT)[0], wanted, rtol=0, atol=1e-4)


def test_vectors_of_texts(tmp_path: Path) -> None:
    """By the modules that sentence-transformers lists: mean and largest, a layer, length 1."""
    model, tokenizer = make("bert", tmp_path)
    kinds = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Dense", "2_Dense"),
        ("Normalize", "3_Normalize"),
    ]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    for _, path in kinds[1:]:
        (tmp_path / path).mkdir()
    pooling = {
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": True,
        "pooling_mode_cls_token": False,
    }
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    dense = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps(dense))
    chance = np.random.default_rng(1)
    weight, bias = (chance.standard_normal(size).astype(np.float32) for size in ((8, 64), (8,)))
    save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "2_Dense" / "model.safetensors")
    with torch.no_grad():
        states = model(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0].numpy()
    pooled = np.tanh(np.concatenate([states.max(0), states.mean(0)]) @ weight.T + bias)
    wanted = pooled / np.linalg.norm(pooled)
    np.testing.assert_allclose(run(tmp_path, "--text", TEXT)[0], wanted, rtol=0, atol=1e-5)


def test_texts_for_texts(tmp_path: Path) -> None:
    model, tokenizer = make("t5", tmp_path)
    given = tokenizer(TEXT, return_tensors="pt", return_token_type_ids=False)
    wanted = model.generate(**given, max_new_tokens=12, do_sample=False)[0]
    found = run(tmp_path, "--text", TEXT, "--max-tokens", "12")
    assert found == [{"generated_text": tokenizer.decode(wanted, skip_special_tokens=True)}]


def test_a_task_says_what_it_takes(tmp_path: Path) -> None:
    make("llama", tmp_path)
    refused = call("run", tmp_path, "--text", TEXT)
    assert "lamella generate FOLDER --prompt TEXT" in refused.stderr
    assert call("run", tmp_path, "--context", TEXT).exit_code != 0


# --- speech -------------------------------------------------------------------------------------------------------


def write_wav(path: Path, samples: np.ndarray[Any, Any], rate: int = 16000, width: int = 2) -> None:
    """Samples as a file of one channel, by Python's own writer."""
    numbers = (samples * (2 ** (8 * width - 1) - 1)).astype(np.int32)
    raw = numbers.astype("<i4").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(raw[place : place + width] for place in range(0, len(raw), 4)))


def tone(count: int) -> np.ndarray[Any, Any]:
    """A tone that rises, with some noise."""
    time = np.arange(count) / 16000
    found: np.ndarray[Any, Any] = 0.4 * np.sin(2 * np.pi * (300 + 900 * time) * time)
    return found + 0.05 * np.random.default_rng(0).standard_normal(count)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_samples_of_files(width: int, tmp_path: Path) -> None:
    samples = tone(50)
    write_wav(tmp_path / "a.wav", samples, 8000, width)
    found = read_wav(tmp_path / "a.wav")
    assert found.rate == 8000
    np.testing.assert_allclose(found.samples, samples, rtol=0, atol=1e-4)


def test_features_are_those_of_transformers() -> None:
    for bands, seconds in ((80, 2), (128, 1)):
        judge = EXTRACTOR(feature_size=bands, chunk_length=seconds)
        samples = tone(20000)[: seconds * 16000]
        wanted = judge(samples, sampling_rate=16000, return_tensors="np").input_features
        found = mel_features(samples, Hearing(bands=bands, seconds=seconds))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_what_is_said(tmp_path: Path) -> None:
    model, tokenizer = make("whisper", tmp_path, max_source_positions=50)
    judge = EXTRACTOR(feature_size=8, chunk_length=1)
    judge.save_pretrained(tmp_path)
    samples = tone(16000)
    write_wav(tmp_path / "a.wav", samples)
    features = judge(
        read_wav(tmp_path / "a.wav").samples, sampling_rate=16000, return_tensors="pt"
    ).input_features
    wanted = model.generate(features, max_new_tokens=12, do_sample=False)[0]
    found = run(tmp_path, "--audio", tmp_path / "a.wav", "--max-tokens", "12")
    assert found == [{"text": tokenizer.decode(wanted, skip_special_tokens=True)}]
    write_wav(tmp_path / "b.wav", samples, 8000)
    refused = call("run", tmp_path, "--audio", tmp_path / "b.wav")
    assert "8000 samples in a second, the model hears 16000" in refused.stderr
    assert "takes --audio" in call("run", tmp_path, "--text", TEXT).stderr


def balance(model: Any, bias: Any, means: Any, folder: Path) -> None:
    """Let no label be the best everywhere."""
    with torch.no_grad():
        bias -= means
    model.save_pretrained(folder)


def hear(folder: Path, samples: np.ndarray[Any, Any], **values: Any) -> Any:
    """A file of samples, and what a model of transformers takes of it."""
    kind: Any = transformers.Wav2Vec2FeatureExtractor
    judge = kind(**values)
    judge.save_pretrained(folder)
    write_wav(folder / "a.wav", samples)
    heard = read_wav(folder / "a.wav").samples
    return judge(heard, sampling_rate=16000, return_tensors="pt").input_values


def test_letters_of_speech(tmp_path: Path) -> None:
    model = save("wav2vec2 letters", tmp_path, seed=5)
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXY"]
    (tmp_path / "vocab.json").write_text(json.dumps({item: number for number, item in enumerate(letters)}))
    kind: Any = transformers.Wav2Vec2CTCTokenizer
    tokenizer = kind(str(tmp_path / "vocab.json"), do_lower_case=True)
    tokenizer.save_pretrained(tmp_path)
    heard = hear(tmp_path, tone(1600))
    balance(model, model.lm_head.bias, model(heard).logits.mean((0, 1)), tmp_path)
    best = model(heard).logits.argmax(-1)[0]
    assert len(set(best.tolist())) > 4
    found = run(tmp_path, "--audio", tmp_path / "a.wav")
    assert found == [{"text": tokenizer.decode(best)}]
    (tmp_path / "vocab.json").unlink()
    assert "no vocab.json" in call("run", tmp_path, "--audio", tmp_path / "a.wav").stderr


def test_labels_of_sounds(tmp_path: Path) -> None:
    model = save("wav2vec2 classes", tmp_path, seed=5)
    logits = model(hear(tmp_path, tone(800), do_normalize=False)).logits[0].softmax(-1)
    scores, places = logits.topk(5)
    (found,) = run(tmp_path, "--audio", tmp_path / "a.wav")
    wanted = zip(places.tolist(), scores.tolist(), strict=True)
    assert_alike(found, [{"label": f"LABEL_{place}", "score": score} for place, score in wanted])
    assert "takes --audio" in call("run", tmp_path, "--text", TEXT).stderr


def picture(file: Path, height: int = 31, width: int = 47, mode: str = "RGB") -> Any:
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8)
    Image.fromarray(pixels, mode).save(file)
    return Image.open(file).convert("RGB")


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    shape = {"shortest_edge": 20} if name.startswith("C") else {"height": 21, "width": 23}
    crop = {} if name.startswith(("ViT", "S", "Conv")) else {"crop_size": {"height": 17, "width": 18}}
    judge = getattr(transformers, name)(size=shape, **crop)
    judge.save_pretrained(tmp_path)
    for number, (sides, mode) in enumerate((((31, 47), "RGB"), ((50, 20), "L"), ((9, 9), "RGBA"))):
        image = picture(tmp_path / f"{number}.png", *sides, mode)
        wanted = judge(image, return_tensors="np").pixel_values
        found = read_picture(tmp_path / f"{number}.png", read_seeing(tmp_path)).pixels
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_labels_of_images(tmp_path: Path) -> None:
    model = save("vit classes", tmp_path, seed=5)
    judge = transformers.ViTImageProcessorPil(size={"height": 18, "width": 18})
    judge.save_pretrained(tmp_path)
    images = [picture(tmp_path / "a.png"), picture(tmp_path / "b.png", 20, 20)]
    wanted: Any = transformers.pipeline("image-classification", model=model, image_processor=judge)(images)
    found = run(tmp_path, "--image", tmp_path / "a.png", "--image", tmp_path / "b.png")
    for ours, theirs in zip(found, wanted, strict=True):
        assert_alike(ours, theirs)
    (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:90])
    assert "is no image that can be read" in call("run", tmp_path, "--image", tmp_path / "c.png").stderr
    assert "takes --image" in call("run", tmp_path, "--text", TEXT).stderr


def test_images_of_other_sizes_have_positions_between_the_learned_ones(tmp_path: Path) -> None:
    model = save("dinov2", tmp_path, seed=5)
    judge = transformers.ViTImageProcessorPil(size={"height": 25, "width": 16})
    judge.save_pretrained(tmp_path)
    pixels = judge(picture(tmp_path / "a.png"), return_tensors="pt").pixel_values
    wanted = model(pixels).last_hidden_state[0].detach().numpy()
    found = run(tmp_path, "--image", tmp_path / "a.png")
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    refused = call("run", tmp_path, "--image", tmp_path / "a.png", "--set", "height=20")
    assert "makes images of 3×25×16, the model takes 3×20×18" in refused.stderr


def test_labels_of_pixels(tmp_path: Path) -> None:
    model = save("segformer pixels", tmp_path, seed=5)
    judge = transformers.SegformerImageProcessorPil(size={"height": 40, "width": 36}, do_reduce_labels=True)
    judge.save_pretrained(tmp_path)
    image = picture(tmp_path / "a.png")
    pixels = judge(image, return_tensors="pt").pixel_values
    balance(model, model.decode_head.classifier.bias, model(pixels).logits.mean((0, 2, 3)), tmp_path)
    out = model(pixels)
    (wanted,) = judge.post_process_semantic_segmentation(out, target_sizes=[(31, 47)])
    (found,) = run(tmp_path, "--image", tmp_path / "a.png", "--top", "2")
    assert found["size"] == [31, 47]
    # Scores of two labels may be alike up to rounding.
    assert (np.asarray(found["map"]) == wanted.numpy()).mean() > 0.995
    counts = np.bincount(np.reshape(found["map"], -1), minlength=7)
    assert [item["pixels"] for item in found["labels"]] == sorted(counts)[:-3:-1]
    assert counts.max() < 0.9 * counts.sum()
    assert all(item["label"] == f"LABEL_{item['number']}" for item in found["labels"])


def test_vectors_of_images(tmp_path: Path) -> None:
    model = save("clip vision projected", tmp_path, seed=5)
    judge = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 20}, crop_size={"height": 18, "width": 18}
    )
    judge.save_pretrained(tmp_path)
    pixels = judge(picture(tmp_path / "a.png"), return_tensors="pt").pixel_values
    wanted = model(pixels).image_embeds[0].detach().numpy()
    found = run(tmp_path, "--image", tmp_path / "a.png")
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_model_without_a_head_takes_what_it_is_made_for(tmp_path: Path) -> None:
    for name, given, wanted in (
        ("ResNetModel", "image", "image-feature-extraction"),
        ("MarianMTModel", "text", "text-to-text"),
        ("AlbertModel", "text", "feature-extraction"),
    ):
        assert find_task(tmp_path, {"architectures": [name]}, given).name == wanted
    with pytest.raises(InputError, match="its two towers compare texts with images"):
        find_task(tmp_path, {"architectures": ["CLIPModel"]}, "text")
