import lightning
import torch
import toy
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = toy.model()
        self.clock = toy.Clock()

    def training_step(self, batch, index):
        return toy.loss(self.model(batch[0]), batch[1])

    def validation_step(self, batch, index):
        toy.loss(self.model(batch[0]), batch[1])

    def on_train_batch_end(self, *args):
        self.clock.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


classifier = Classifier()
trainer = lightning.Trainer(
    max_steps=40,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    num_sanity_val_steps=2,
    val_check_interval=10,
)
trainer.fit(
    classifier,
    DataLoader(toy.data(1024), batch_size=16),
    DataLoader(toy.data(128), batch_size=32),
)
classifier.clock.report()
