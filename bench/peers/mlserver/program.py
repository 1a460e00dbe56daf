"""The model that MLServer loads."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.peers.session import open_session
from bench.peers.task import read_task


class OnnxModel(MLModel):
    """One float32 input, one float32 output."""

    async def load(self) -> bool:
        """Open the session."""
        self._session = open_session(read_task())
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run one batch, which MLServer has merged of several requests if batching is on."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = self._session.run(None, {"input": rows})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output", output)])
