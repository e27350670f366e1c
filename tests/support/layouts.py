"""Small files in every layout that the readers of datasets know."""

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tembed.lab.data import catalogue


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def random_images(count: int, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def class_folders(classes: dict[str, int], size: int = 8, top: tuple[str, ...] = ("",)) -> dict[str, bytes]:
    """PNGs by name: ``classes`` maps a class to how many images it has under each of the top folders."""
    files = {}
    for seed, (name, count) in enumerate(sorted(classes.items())):
        for subset, folder in enumerate(top):
            for number, pixels in enumerate(random_images(count, size, 100 * seed + subset)):
                files[f"{folder}{name}/{number:03}.png"] = png(pixels)
    return files


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def cifar_arrays(classes: int, each: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Planes ``(n, 3072)`` and labels of five training batches and the test batch."""
    rng = np.random.default_rng(classes)
    labels = [rng.permutation(np.repeat(np.arange(classes), each)) for _ in range(6)]
    return [rng.integers(0, 256, (len(batch), 3072), dtype=np.uint8) for batch in labels], labels


def cifar10_files(form: str, each: int = 1) -> dict[str, bytes]:
    planes, labels = cifar_arrays(10, each)
    names = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    if form == "pickles":
        batches = [{b"data": p, b"labels": y.tolist()} for p, y in zip(planes, labels, strict=True)]
        return {f"cifar-10-batches-py/{n}": pickle.dumps(d, protocol=2) for n, d in zip(names, batches, strict=True)}
    if form == "binary":
        rows = [np.column_stack([y.astype(np.uint8), p]) for p, y in zip(planes, labels, strict=True)]
        return {f"cifar-10-batches-bin/{n}.bin": r.tobytes() for n, r in zip(names, rows, strict=True)}
    if form == "pngs":
        files = {
            f"package/{n}.png": png(np.ascontiguousarray(p.reshape(-1, 3, 1024).transpose(0, 2, 1)))
            for n, p in zip(names, planes, strict=True)
        }
        files["package/train_lables.json"] = json.dumps(np.concatenate(labels[:5]).tolist()).encode()
        files["package/test_lables.json"] = json.dumps(labels[5].tolist()).encode()
        return files
    assert form == "folders"
    files = {}
    for batch, (rows, y) in enumerate(zip(planes, labels, strict=True)):
        for row, (plane, label) in enumerate(zip(rows, y, strict=True)):
            top, name = "test" if batch == 5 else "train", catalogue.CIFAR10.classes[label]
            files[f"{top}/{name}/{batch}_{row}.png"] = png(plane.reshape(3, 32, 32).transpose(1, 2, 0).copy())
    return files


def cifar100_files(form: str, each: int = 1) -> dict[str, bytes]:
    planes, labels = cifar_arrays(100, each)
    train = np.concatenate(planes[:5]), np.concatenate(labels[:5])
    files = {}
    for name, (rows, fine) in {"train": train, "test": (planes[5], labels[5])}.items():
        if form == "pickles":
            content = {b"data": rows, b"fine_labels": fine.tolist(), b"coarse_labels": [0] * len(fine)}
            files[f"cifar-100-python/{name}"] = pickle.dumps(content, protocol=2)
        else:
            columns = [np.zeros(len(fine), np.uint8), fine.astype(np.uint8), rows]
            files[f"cifar-100-binary/{name}.bin"] = np.column_stack(columns).tobytes()
    return files | ({"cifar-100-python/meta": pickle.dumps({})} if form == "pickles" else {})


def mini_csvs(classes: int = 3, each: int = 4) -> dict[str, bytes]:
    files, tables = {}, {subset: ["filename,label"] for subset in ("train", "val", "test")}
    for label in range(classes):
        wnid = f"n{label:08}"
        for number, pixels in enumerate(random_images(each, 8, label)):
            file = f"{wnid}{number:08}.png"
            files[f"images/{file}"] = png(pixels)
            tables[list(tables)[label % 3]].append(f"{file},{wnid}")
    return files | {f"{subset}.csv": "\n".join(rows).encode() for subset, rows in tables.items()}


def mini_caches(each: int = 4, protocol: int = 4) -> dict[str, bytes]:
    files = {}
    for number, subset in enumerate(("train", "val", "test")):
        images = random_images(2 * each, 8, number)
        by_class = {f"n{2 * number + k:08}": list(range(k * each, (k + 1) * each)) for k in range(2)}
        data = {"image_data": images, "class_dict": by_class}
        files[f"mini-imagenet-cache-{subset}.pkl"] = pickle.dumps(data, protocol=protocol)
    return files
