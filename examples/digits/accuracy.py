"""The share of digits that models read right, of the 599 that were not learnt from.

python accuracy.py MODEL…
"""

import sys

import numpy as np

import lamella

data = np.load("digits.npz")
images, labels = data["image"][1198:].astype(np.float32), data["label"][1198:]
for path in sys.argv[1:]:
    run = lamella.compile(path)
    scores = np.concatenate([run(image=image[None])["scores"] for image in images])
    sys.stdout.write(f"{path}: {(scores.argmax(axis=1) == labels).mean():.2%}\n")
